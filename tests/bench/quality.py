#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the cost of fewer bits: for each format, recipe and number of bits the size and the divergence from the
checkpoint, without and with calibration; beside them files of llama.cpp from the same checkpoint and text.

    python3 tests/bench/quality.py CHECKPOINT TEXT CALIBRATION_TEXT [--llama FOLDER] [--bits 2.5 3 ...]

CHECKPOINT is what `moe convert` takes; a GGUF file for --llama, the folder with llama-imatrix and llama-quantize. The
divergence is that of `moe compare` on TEXT. A line of llama.cpp has its importance matrix, from CALIBRATION_TEXT.
"""

import argparse
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

FORMATS = ("tcq2", "int2_k", "tcq3", "int3_k", "int4", "nl4", "int4_k", "int6_k", "int8", "int8_group")  # of all matrices
RECIPES = ("int4", "int4_k", "mixed4", "auto")
BITS = (2.5, 3, 3.5, 4.25, 5, 6)
TYPES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "Q2_K", "IQ3_XXS", "IQ3_S", "Q3_K_M", "IQ4_XS", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")
HEAD = "| stored as | bits | MB | KL without a text | same best token | KL with | same best token |\n|---|---|---|---|---|---|---|"


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(word) for word in command)}: {done.stderr.strip()[-500:]}")
    return done.stdout, done.stderr


def run_json(*command):
    return json.loads(run(*command)[0])


class Table:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.base, self.statistics = folder / "base.kld", args.statistics or folder / "statistics"
        given = ("--statistics", args.statistics) if args.statistics else ("--calibrate", args.calibration, "--save-statistics", self.statistics)
        run(args.moe, "compare", args.checkpoint, "-f", args.text, "--save-base", self.base)
        report = run_json(args.moe, "convert", args.checkpoint, folder / "first.moe", "--weights", "int4", "--json", *given)
        (folder / "first.moe").unlink()
        self.n_weights = report["total"]["weights"]
        names = {re.sub(r"\.\d+\.", ".*.", m["matrix"]) for m in report["matrices"] if ".router" not in m["matrix"]}
        self.patterns = sorted(names)

    def compare(self, model):
        found = run_json(self.args.moe, "compare", self.base, model, "--json")
        return f"{found['kl']['mean']:.4f} ± {found['kl']['error']:.4f} | {100 * found['same_best']['mean']:.1f} %"

    def ours(self, name, options):
        """A line of the table."""
        path, cells = self.folder / f"{name.strip('`')}.moe", []
        for given in ((), ("--statistics", self.statistics)):
            if not given and self.args.calibrated_only:
                cells.append(" | ")
                continue
            try:
                report = run_json(self.args.moe, "convert", self.args.checkpoint, path, "--json", *options, *given)
            except RuntimeError as e:
                if "needs at least" not in str(e):
                    raise
                return f"| {name} | {re.search('needs at least ([0-9.]+)', str(e))[1]} at least | | | | | |"
            size = sum(m["bytes"] for m in report["matrices"])
            cells.append(self.compare(path))
            path.unlink()
        return f"| {name} | {8 * size / self.n_weights:.2f} | {size / 1e6:.1f} | {' | '.join(cells)} |"

    @functools.cached_property
    def importance(self):
        path = self.folder / "imatrix.gguf"
        run(self.args.llama / "llama-imatrix", "-m", self.args.checkpoint, "-f", self.args.calibration, "-o", path, "-ngl", "0")
        return path

    def theirs(self, kind):
        path = self.folder / f"{kind}.gguf"
        said = run(self.args.llama / "llama-quantize", "--imatrix", self.importance, self.args.checkpoint, path, kind, 1)
        size, bits = (float(x) for x in re.search(r"quant size\s*=\s*([\d.]+) MiB \(([\d.]+) BPW\)", "".join(said)).groups())
        line = f"| llama.cpp {kind} | {bits:.2f} | {size * 2**20 / 1e6:.1f} | | | {self.compare(path)} |"
        path.unlink()
        return line

    def lines(self):
        """The lines of the table, each made when it is asked for."""
        def all_of(name):
            return [word for pattern in self.patterns for word in ("--set", f"{pattern}={name}")]
        for name in self.args.formats:
            yield self.ours(f"all `{name}`", ["--weights", name, *all_of(name)])
        for name in self.args.recipes:
            yield self.ours(f"`--weights {name}`", ["--weights", name])
        for bits in self.args.bits:
            yield self.ours(f"`--bits {bits:g}`", ["--bits", f"{bits:g}"])
        if self.args.llama:
            for kind in self.args.types:
                yield self.theirs(kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("checkpoint", "text", "calibration"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--llama", type=pathlib.Path, metavar="FOLDER", help="with llama-imatrix and llama-quantize")
    parser.add_argument("--statistics", type=pathlib.Path, metavar="FILE", help="of the calibration text, saved earlier")
    parser.add_argument("--moe", default="build/release/bin/moe", help="the program (default %(default)s)")
    parser.add_argument("--calibrated-only", action="store_true", help="leave the columns without a text empty")
    for name, default, kind in (("formats", FORMATS, str), ("recipes", RECIPES, str), ("bits", BITS, float), ("types", TYPES, str)):
        parser.add_argument(f"--{name}", nargs="*", default=default, type=kind, help=f"default {' '.join(map(str, default))}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Table(args, pathlib.Path(folder))
        print(HEAD, flush=True)
        for line in table.lines():
            print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as e:
        sys.exit(str(e))
