#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The benchmarks and the profiled step of tests/gpu/bench, on the emulator.

Usage: bench_test.py FOLDER_OF_PROGRAMS MODEL FAKE_CUBLAS_LT
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAMS, MODEL, FAKE = (os.path.abspath(argument) for argument in sys.argv[1:4])


def run(name, *arguments, libraries=""):
    return subprocess.run([os.path.join(PROGRAMS, name), *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": libraries})


class Bench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.out = os.path.join(self.folder, "kernels.json")

    def result(self):
        with open(self.out, encoding="utf-8") as f:
            return json.load(f)

    def test_every_case_runs(self):
        os.symlink(FAKE, os.path.join(self.folder, "libcublasLt.so.13"))
        done = run("gpu_bench_emulated", "--small", self.out, libraries=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.result()
        self.assertNotIn("failures", result)
        names = [k["name"] for k in result["kernels"]]
        for wanted in ("prepare, Maple, 32 rows", "router scores, Maple, 1 row", "route, OLMoE, 32 rows",
                       "combine, Maple, 32 rows", "attention, OLMoE, 1 session, 1 row behind 40",
                       "attention, Maple, window 513, 32 sessions, 1 row behind 40",
                       "ternary2, a8_block, a scale per row experts, Maple, 8 of 128 x 32, 32 tokens",
                       "int4_k experts, OLMoE, 8 of 128 x 64, 32 tokens", "int8 linear 256 x 256, 8 rows"):
            self.assertIn(wanted, names)
        for k in result["kernels"]:
            self.assertGreater(k["us"], 0, k)
            in_cache = k["name"].startswith(("prepare,", "route,", "combine,"))
            self.assertEqual("share_of_copy" in k, not in_cache, k)
        self.assertEqual(len(result["against_cublas_lt"]), 9)
        for case in result["against_cublas_lt"]:
            self.assertIn("bare_us", case)

    def test_a_decode_step(self):
        done = run("gpu_decode_step_emulated", MODEL, "20")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for arguments, code, text in (((), 2, "usage"), ((MODEL, "0"), 2, "usage"), (("none.moe",), 1, "none.moe")):
            done = run("gpu_decode_step_emulated", *arguments)
            self.assertEqual(done.returncode, code)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
