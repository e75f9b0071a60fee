#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peak resident memory (VmHWM) of commands under memory caps, from the least to the whole model.

    python3 tests/bench/memory_cap.py build/release/bin/moe                              # a synthetic model of 1.2 GB
    python3 tests/bench/memory_cap.py build/release/bin/moe --model FILE.moe --cap 1200M --cap 2G

A model without a tokenizer, as synthetic ones are, generates from token ids, and `score` takes the place of `perplexity`,
which needs a text. Writes its model, unless one is given, to TMPDIR and removes it. Exits 1 when a peak is more than 16 MB
above its cap.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ALLOWED = 16 << 20
N_TOKENS = 200
N_NEW = 32
CONTEXT = 256
TEXT = "Once upon a time there was a fox. " * 10


def peak(command):
    """In bytes; not less than what this script takes itself, which its child shares until it is the command."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {child.returncode}")
    # bench measures the machine's memory in another process, which is not the library's: it says its own peak.
    return json.loads(out)["peak_rss_bytes"] if command[1] == "bench" else usage.ru_maxrss << 10


def plan(moe, model, cap):
    j = json.loads(subprocess.run([moe, "inspect", model, "--json", "--memory", cap, "--context", str(CONTEXT)],
                                  check=True, capture_output=True).stdout)
    return j["plan"], j["tokenizer"]


def commands(moe, model, has_text):
    ids = ["--tokens", ",".join(str(i * 37 % 251) for i in range(N_TOKENS))]
    text = ["-p", TEXT]
    yield [moe, "bench", model, "-p", str(N_TOKENS), "-n", str(N_NEW), "-r", "1", "--json"]
    yield [moe, "generate", model, *(text if has_text else ids), "-n", str(N_NEW)]
    yield [moe, "perplexity", model, *text] if has_text else [moe, "score", model, *ids]


def check(moe, model, caps, shares, io):
    """The number of peaks that are too high."""
    whole, has_text = plan(moe, model, "100T")
    least, needed = whole["least_cap_bytes"], whole["needed_bytes"]
    caps = caps or [str(least + (needed - least) * share // 100) for share in shares]
    over = 0
    print(f"{os.path.getsize(model) / 1e6:.0f} MB; the least cap is {least / 1e6:.1f} MB, all takes {needed / 1e6:.1f} MB")
    for cap in caps:
        limit = plan(moe, model, cap)[0]["cap_bytes"]
        for command in commands(moe, model, has_text):
            rss = peak(command + ["--memory", cap, "--io", io, "--context", str(CONTEXT)])
            over += rss > limit + ALLOWED
            print(f"{command[1]:10} cap {limit / 1e6:8.1f} MB  peak {rss / 1e6:8.1f} MB  {(rss - limit) / 1e6:+7.1f}", flush=True)
    return over


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("moe")
    p.add_argument("--model")
    p.add_argument("--weights", default="f32", help="of the synthetic model")
    p.add_argument("--shares", type=int, nargs="+", default=[0, 25, 50, 75, 100],
                   help="caps: the least plus these percentages of what the whole model takes more")
    p.add_argument("--cap", action="append", help="these caps instead")
    p.add_argument("--io", default="direct")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = a.model
        if model is None:
            model = os.path.join(folder, "model.moe")
            subprocess.run([a.moe, "bench", "--synthetic", "mh-moe-768x12-h3", "--weights", a.weights, "--save", model],
                           check=True, capture_output=True)
        return 1 if check(a.moe, model, a.cap, a.shares, a.io) else 0


if __name__ == "__main__":
    sys.exit(main())
