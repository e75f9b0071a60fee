#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Decode of a model larger than memory: llama.cpp through mmap and moe with a cap, both in a memory cgroup of the same size.

Usage: memory_limit.py --dir FOLDER [--moe build/release/bin/moe] [--shape olmoe-1b-7b] [--percent 25,50,75]
                       [--engines int4,llama,ternary2] [--rounds 3] [-n 32] [-r 2] [--threads 2] [--json FILE]

Needs root on Linux: it makes a cgroup, and drops the page cache of the whole machine before each process. Swap must be off,
since a cgroup does not count memory that is swapped out. FOLDER keeps three files: the GGUF file in Q4_0, the model file
converted from it, which has the same weights and chooses the same experts, and one with random ternary weights.
The limit is --percent of the GGUF file's size; moe gets it as --memory, less 32 MB for the program itself.
Run it with PYTHONPATH and MOE_LIBRARY naming moe's Python package and library.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys

from compare import HERE, ROOT, gguf_file, number, run
from shapes import SHAPES

PROGRAM = 32 << 20  # what moe needs besides: its code, its stacks and the interpreter


def model_file(o, weights):
    """The path of the model file, which is written if it does not exist."""
    path = os.path.join(o.dir, f"{o.shape}.{weights}.moe")
    if not os.path.exists(path):
        make = (["convert", gguf_file(o, o.shape, "Q4_0"), path] if weights == "int4" else
                ["bench", "--synthetic", o.shape, "--weights", weights, "-p", "1", "-n", "0", "-r", "1",
                 "--save", path])
        run([o.moe] + make)
    return path


class Limit:
    """A memory cgroup (version 1 or 2), removed at the end."""

    def __init__(self, n_bytes, root="/sys/fs/cgroup"):
        old = os.path.isdir(f"{root}/memory")
        self.path = f"{root}/{'memory/' if old else ''}moe-peers-{os.getpid()}"
        self.file = "memory.limit_in_bytes" if old else "memory.max"
        self.n_bytes = n_bytes

    def __enter__(self):
        os.mkdir(self.path)
        try:
            with open(os.path.join(self.path, self.file), "w", encoding="utf-8") as f:
                f.write(str(self.n_bytes))
        except BaseException:  # includes the SystemExit of a signal
            os.rmdir(self.path)
            raise
        return self.path

    def __exit__(self, *_):
        os.rmdir(self.path)


def exit_on_signals():
    """Makes SIGTERM and SIGHUP end the worker and remove the cgroup, as Ctrl-C does, unless they are ignored (nohup)."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) != signal.SIG_IGN:
            signal.signal(name, lambda n, _: sys.exit(128 + n))


def refuse_swap(path="/proc/swaps"):
    """With swap the comparison would be unfair: moe's memory could be swapped out, but a mapped file is read again."""
    with open(path, encoding="utf-8") as f:
        names = [line.split()[0] for line in f.readlines()[1:] if line.strip()]
    if names:
        sys.exit(f"swap is on ({', '.join(names)}), and the limit counts memory alone: swapoff -a, then run it again")


def read_ahead(folder, sys_root="/sys"):
    """The read-ahead in kB of the block device that holds the folder (for a partition: of its disk), and the device's number."""
    device = os.stat(folder).st_dev
    device = f"{os.major(device)}:{os.minor(device)}"
    for path in (f"class/bdi/{device}", f"dev/block/{device}/queue", f"dev/block/{device}/../queue"):
        path = os.path.join(sys_root, path, "read_ahead_kb")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                return f.read().strip(), device
    return "unknown", device


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="utf-8") as f:
        f.write("3")


def measure(o, engine, limit):
    if engine == "llama":
        command = ["llama_worker.py", gguf_file(o, o.shape, "Q4_0"), "--plain-buffers", "-p", ""]
    else:
        command = ["moe_worker.py", model_file(o, engine), "--memory", str(limit - PROGRAM)]
    command += ["-n", str(o.generate), "-r", str(o.repetitions), "-t", str(o.threads)]
    drop_caches()
    with Limit(limit) as cgroup:
        command = [sys.executable, os.path.join(HERE, command[0])] + command[1:]
        got = json.loads(run(command + ["--cgroup", cgroup]))
    return {"rate": statistics.median(got["rates"]["decode"]), "read": got["read_bytes_per_token"],
            "peak": got["peak_bytes"]}


def print_row(percent, limit, engine, rounds):
    middle = lambda key: statistics.median(r[key] for r in rounds)
    rates = sorted(r["rate"] for r in rounds)
    print(f"| {percent} % ({limit / 1e6:.0f} MB) | {engine} | {number(middle('rate'))} "
          f"| {number(rates[0])} to {number(rates[-1])} | {number(middle('read') / 1e6)} "
          f"| {middle('peak') / 1e6:.0f} |", flush=True)


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = lambda s: s.split(",")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--moe", default=os.path.join(ROOT, "build/release/bin/moe"))
    parser.add_argument("--shape", choices=SHAPES, default="olmoe-1b-7b")
    parser.add_argument("--percent", type=lambda s: [int(p) for p in s.split(",")], default=[25, 50, 75])
    parser.add_argument("--engines", type=names, default=["int4", "llama", "ternary2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", "--generate", type=int, default=32)
    parser.add_argument("-r", "--repetitions", type=int, default=2)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--json", help="keeps every round's figures in this file")
    return parser.parse_args()


def main():
    o = options()
    exit_on_signals()
    refuse_swap()
    os.makedirs(o.dir, exist_ok=True)
    print("read_ahead_kb of {1}: {0}\n".format(*read_ahead(o.dir)))
    whole = os.path.getsize(gguf_file(o, o.shape, "Q4_0"))
    print("| limit | | tokens/s | of single rounds | MB read a token | peak of the cgroup, MB |\n"
          "|---|---|---|---|---|---|", flush=True)
    rows = []
    for percent in o.percent:
        limit = whole * percent // 100
        found = {engine: [] for engine in o.engines}
        for r in range(o.rounds):
            for engine in o.engines if r % 2 == 0 else reversed(o.engines):
                found[engine].append(measure(o, engine, limit))
        for engine in o.engines:
            print_row(percent, limit, engine, found[engine])
        rows.append({"percent": percent, "limit": limit} | found)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
