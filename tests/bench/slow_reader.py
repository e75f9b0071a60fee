#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Decode under a memory cap from a slow medium, with plain and with zstd segments: is the smaller file slower or faster?

    PYTHONPATH=bindings/python/src MOE_LIBRARY=build/release/lib/libmoe.so python3 tests/bench/slow_reader.py build/release/bin/moe FOLDER

Writes a checkpoint in Maple's layout with random ternary weights into FOLDER (needs numpy, and 3 GB of disk for --divide 2),
converts it twice, removes it, and decodes from both files in turn through a reader limited to --rate MB per second.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "parity"))
import maple_size  # noqa: E402
import moe  # noqa: E402

CONTEXT = 128


class SlowFile:
    """A file read at `rate` bytes per second. The library makes one request at a time."""

    def __init__(self, path, rate):
        self.file, self.rate, self.slow = open(path, "rb", buffering=0), rate, False

    def seek(self, *where):
        return self.file.seek(*where)

    def read(self, n):
        start = time.monotonic()
        data = self.file.read(n)
        if self.slow:
            time.sleep(max(0.0, len(data) / self.rate - (time.monotonic() - start)))
        return data


def cap_for(command, path, percent):
    """The memory cap that holds this percentage of the experts and everything else."""
    out = subprocess.run([command, "inspect", path, "--json", "--memory", "100T", "--context", str(CONTEXT)], check=True,
                         capture_output=True).stdout
    plan = json.loads(out)["plan"]
    return plan["least_cap_bytes"] + (plan["needed_bytes"] - plan["least_cap_bytes"]) * percent // 100


def make(o):
    """Makes two files of the same weights, plain and zstd, unless they exist; returns their paths."""
    paths = [os.path.join(o.folder, name) for name in ("plain.moe", "zstd.moe")]
    if all(map(os.path.exists, paths)):
        return paths
    source = os.path.join(o.folder, "checkpoint")
    try:
        maple_size.write(source, maple_size.config(o.divide, o.layers))
        for path, codec in zip(paths, ("none", "zstd")):
            subprocess.run([o.moe, "convert", source, path, "--compress", codec], check=True, capture_output=True)
    finally:
        shutil.rmtree(source, ignore_errors=True)
    return paths


def decode(o, path):
    """Tokens per second, and MB read per token."""
    file = SlowFile(path, o.rate * 1e6)
    with moe.Model(file, memory_bytes=cap_for(o.moe, path, o.percent), context=CONTEXT) as model:
        with model.session(context=CONTEXT) as session:
            session.eval([i * 37 % 1000 for i in range(8)])
            file.slow = True
            before = session.memory_stats.model.read_bytes
            start = time.monotonic()
            for i in range(o.tokens):
                session.eval([i * 101 % 1000])
            seconds = time.monotonic() - start
            read = session.memory_stats.model.read_bytes - before
    return o.tokens / seconds, read / o.tokens / 1e6


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("moe")
    p.add_argument("folder")
    p.add_argument("--rate", type=float, default=200, help="MB per second")
    p.add_argument("--percent", type=int, default=25, help="share of the experts in memory")
    p.add_argument("--divide", type=int, default=2, help="divisor of Maple's width")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    paths = make(o)
    found = {path: [] for path in paths}
    for r in range(o.rounds):
        for path in paths if r % 2 == 0 else reversed(paths):
            found[path].append(decode(o, path))
    for path in paths:
        rates = [rate for rate, _ in found[path]]
        print(f"{os.path.basename(path)}: {os.path.getsize(path) / 1e6:.0f} MB, {statistics.median(rates):.2f} tokens/s "
              f"({min(rates):.2f} to {max(rates):.2f}), {found[path][0][1]:.2f} MB read a token")


if __name__ == "__main__":
    main()
