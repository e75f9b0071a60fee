#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command moe on the emulated CUDA device.

Usage: cli_test.py BUILD_DIR MODEL MODULE
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, MODEL, MODULE = sys.argv[1:4]
PLACE = tempfile.TemporaryDirectory()
PROMPTS = ("Once upon a time", "The girl said")


def setUpModule():
    """Makes a copy of the command and its libraries, with the module beside them."""
    for name in ("bin/moe", "lib/libmoe.so.0.1", "lib/libmoe_convert.so.0.1", "lib/libmoe_serve.so.0.1"):
        os.makedirs(os.path.join(PLACE.name, os.path.dirname(name)), exist_ok=True)
        shutil.copy(os.path.join(BUILD, name), os.path.join(PLACE.name, name))
    shutil.copy(MODULE, os.path.join(PLACE.name, "lib"))


def run(*arguments, module=True, gpu=""):
    command = os.path.join(PLACE.name if module else BUILD, "bin/moe")
    return subprocess.run([command, *arguments], capture_output=True, text=True,
                          env={**os.environ, "MOE_EMULATED_GPU": gpu})


def generate(prompt, *options, **how):
    return run("generate", MODEL, "-p", prompt, "-n", "12", "--context", "64", *options, **how)


class Cuda(unittest.TestCase):
    def test_same_text_as_the_cpu(self):
        for prompt in PROMPTS:
            expected = generate(prompt, "--device", "cpu")
            found = generate(prompt, "--device", "cuda")
            self.assertEqual(found.returncode, 0, found.stderr)
            self.assertEqual(found.stdout, expected.stdout)

    def test_a_gpu_is_taken_only_by_name(self):
        for device, expected in (((), "cpu"), (("--device", "auto"), "cpu"), (("--device", "cuda"), "cuda:0 (emulated)")):
            bench = run("bench", MODEL, "-p", "4", "-n", "2", "-r", "1", "--json", "--context", "64", *device)
            self.assertEqual(bench.returncode, 0, bench.stderr)
            result = json.loads(bench.stdout)
            self.assertEqual(result["device"], expected)
            if expected != "cpu":
                self.assertIsNone(result["share_of_bandwidth"])
        named = generate(PROMPTS[0], "--device", "auto")
        self.assertIn("on the CPU: a GPU is used only if named, as cuda", named.stderr)
        self.assertNotIn("GPU", generate(PROMPTS[0]).stderr)

    def test_without_the_module(self):
        asked = generate(PROMPTS[0], "--device", "cuda", module=False)
        self.assertEqual(asked.returncode, 1)
        self.assertIn("libmoe_cuda.so", asked.stderr)

    def test_a_gpu_without_code(self):
        asked = generate(PROMPTS[0], "--device", "cuda", gpu="no_code")
        self.assertEqual(asked.returncode, 1)
        self.assertRegex(asked.stderr, r"no code for compute capability 9\.0, it is built for 8\.0")

    def test_limits(self):
        refused = generate(PROMPTS[0], "--device", "cuda", "--gpu-memory", "3M")
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, r"MB needed, the limit is .* one expert")
        self.assertIn("no GPU 7", generate(PROMPTS[0], "--device", "cuda:7").stderr)
        for wrong in ("gpu", "cuda:", "cuda:x", "cuda1"):
            self.assertIn("expected auto, cpu, cuda", generate("x", "--device", wrong).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
