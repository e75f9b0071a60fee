#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the time of a whole `moe generate FILE -n 1`, to the first token, of several programs in turns.

    python3 tests/bench/first_token.py FILE old/bin/moe build/release/bin/moe --rounds 6

Each program runs as it is; the last one also with --map. The first round, which fills the page cache, does not count.
Prints medians and every wall-clock time.
"""

import argparse
import resource
import statistics
import subprocess
import time


def used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_stime, usage.ru_utime


def measured(program, file, tokens, options):
    """(wall, system, user) seconds of one run."""
    system, user = used()
    start = time.monotonic()
    subprocess.run([program, "generate", file, "--tokens", tokens, "-n", "1", *options], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    wall = time.monotonic() - start
    return wall, used()[0] - system, used()[1] - user


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2, 64], help="lengths of prompts")
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    ways = [(p, p, ()) for p in args.programs] + [(args.programs[-1] + " --map", args.programs[-1], ("--map",))]
    for n in args.tokens:
        tokens = ",".join(str(7 * i + 1) for i in range(n))  # random models take any
        runs = {name: [] for name, _, _ in ways}
        for _ in range(args.rounds + 1):
            for name, program, options in ways:
                runs[name].append(measured(program, args.file, tokens, options))
        for name, (_, *counted) in runs.items():
            wall, system, user = (statistics.median(times) for times in zip(*counted))
            walls = " ".join(f"{w:.2f}" for w, _, _ in counted)
            print(f"{n} tokens, {name}: wall {wall:.2f} s, system {system:.2f} s, user {user:.2f} s (walls {walls})")


if __name__ == "__main__":
    main()
