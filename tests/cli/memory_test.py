#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Any allocation of the command may fail: the command then ends with a message, never with a signal.

Usage: memory_test.py MOE MODEL CHECKPOINT CHAT LIBFAILING_MALLOC [--all]   (--all: every allocation, minutes)
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from support import CHECKPOINT, Cli, MODEL, MOE, main

SHIM = sys.argv[5]
SAMPLES = 10**9 if "--all" in sys.argv else 25
ONE = ("--threads", "1")
OUT = "a file that is new in each run"
COMMANDS = [("--help",), ("generate", "--help"), ("genrate",), ("tokenize", MODEL, "-p", "Once upon", *ONE),
            ("inspect", MODEL, "--tensors", *ONE), ("inspect", MODEL, "--json", *ONE),
            ("eval", MODEL, "-p", "Once", "--top", "2", *ONE), ("generate", MODEL, "-p", "Once", "-n", "2", *ONE),
            ("generate", MODEL, "-p", "Once", "-n", "2", "--seed", "1", "--json", "--stats", *ONE),
            ("chat", MODEL, "-n", "2", "--template", "chatml", "--seed", "1", *ONE), ("perplexity", MODEL, "-p", "Once upon", *ONE),
            ("compare", MODEL, MODEL, "-p", "Once upon a time", *ONE), ("compare", MODEL, "-p", "Once upon", "--save-base", OUT, *ONE),
            ("score", MODEL, "-p", "Once", *ONE), ("embed", MODEL, "-p", "Once", *ONE),
            ("trace", MODEL, "-p", "Once", "-n", "1", "-o", OUT, *ONE), ("convert", CHECKPOINT, OUT, "--verify"),
            ("convert", CHECKPOINT, OUT, "--json"), ("bench", "--synthetic", "tiny", "--save", OUT)]
TIMES = ("seconds", "tokens/s", "tokens (", " s, verified")


def start(args, **env):
    with tempfile.TemporaryDirectory() as folder:
        words = [os.path.join(folder, "out") if a is OUT else a for a in args]
        r = subprocess.run([MOE, *words], capture_output=True, input=b"Once\n", timeout=120,
                           env={**os.environ, "LD_PRELOAD": SHIM, **env})
        r.stdout = r.stdout.replace(os.fsencode(folder), b"")
        r.left = os.listdir(folder)
        return r


def untimed(text):
    return [l for l in text.decode(errors="replace").splitlines() if not any(t in l for t in TIMES)]


class Memory(Cli):
    def count(self, args):
        whole = start(args, FAILING_MALLOC_COUNT=self.path("count"))
        with open(self.path("count")) as f:
            return whole, int(f.read())

    def check(self, args, whole, n, on):
        r = start(args, FAILING_MALLOC=f"{n}+" if on else str(n))
        where = f"moe {' '.join(args)}: allocation {n}{' and later' if on else ''}: {r.returncode} {r.stderr[-300:]}"
        if r.returncode == whole.returncode and untimed(r.stdout) == untimed(whole.stdout):
            return None if r.left == whole.left else f"{where}: left {r.left}"  # the command did without the allocation
        return None if r.returncode == 1 and r.stderr and r.left in ([], ["out"]) else where

    def test_every_allocation_may_fail(self):
        jobs = []
        for args in COMMANDS:
            whole, n = self.count(args)
            self.assertIn(whole.returncode, (0, 2), whole.stderr)
            step = max(1, n // SAMPLES)
            jobs += [(args, whole, i, on) for on in (False, True) for i in range(0, n, step)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            failures = [f for f in pool.map(lambda job: self.check(*job), jobs) if f]
        self.assertEqual(failures, [], f"{len(failures)} of {len(jobs)}")
        print(f"{len(jobs)} failed allocations")


if __name__ == "__main__":
    main()
