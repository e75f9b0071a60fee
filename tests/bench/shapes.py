#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs moe bench on several shapes in turn and prints a table of medians, each with its bound.

Usage: shapes.py [--moe build/release/bin/moe] [--rounds 3] [--json FILE] [-- BENCH OPTIONS]

Options after -- are passed to every run. Run it on an idle machine; the load is printed before and
after.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNS = {
    "olmoe-1b-7b": ["-p", "512", "-n", "64", "-r", "5"],
    "bitnet-2b-4t": ["-p", "512", "-n", "64", "-r", "5"],
    "edge-moe-768x12": ["-p", "512", "-n", "128", "-r", "5"],
    "xmoe-323m": ["-p", "512", "-n", "128", "-r", "5"],
}


def load():
    return " ".join(f"{x:.2f}" for x in os.getloadavg())


def measure(moe, shape, more):
    command = [moe, "bench", "--synthetic", shape, *RUNS[shape], "--json", *more]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def row(shape, runs):
    def middle(key, scale=1.0):
        return scale * statistics.median(r[key] for r in runs)

    shares = sorted(100 * r["share_of_bandwidth"] for r in runs)
    return (f"| `{shape}` | {middle('prefill_tokens_per_s'):.0f} | {middle('decode_tokens_per_s'):.1f} "
            f"| {middle('experts_per_token'):.2f} | {middle('used_bytes_per_token', 1e-6):.0f} "
            f"| {middle('decode_bytes_per_s', 1e-9):.1f} | {middle('read_bandwidth_bytes_per_s', 1e-9):.1f} "
            f"| {statistics.median(shares):.0f} % ({shares[0]:.0f} to {shares[-1]:.0f}) |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--moe", default=os.path.join(ROOT, "build/release/bin/moe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="keeps every run in this file")
    parser.add_argument("more", nargs="*", help="options of moe bench, after --")
    o = parser.parse_args()
    print(f"load before: {load()}", file=sys.stderr)
    runs = {shape: [] for shape in RUNS}
    for _ in range(o.rounds):
        for shape, found in runs.items():
            found.append(measure(o.moe, shape, o.more))
    one = runs["olmoe-1b-7b"][0]
    print(f"{one['threads']} threads, {one['isa']}, medians of {o.rounds} rounds, load {load()}\n")
    print("| shape | prefill, tokens/s | decode, tokens/s | experts a token | MB of weights a token "
          "| GB/s | read, GB/s | share |\n|---|---|---|---|---|---|---|---|")
    for shape, found in runs.items():
        print(row(shape, found))
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(runs, f, indent=1)


if __name__ == "__main__":
    main()
