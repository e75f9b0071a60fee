#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adds the router, the weight format and the instruction set shown in CONTRIBUTING.md to a copy of the tree, each with one
file and one line, builds the copy, and runs the tests that iterate over the lists. Usage: additions_test.py ROOT
[--emulator: the CUDA kernels too]"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import lint

ROOT = os.path.abspath(sys.argv[1])
# target: the tests of it that are run
TESTS = {
    "quant_test": "WeightFormats.*",
    "kernels_test": "Router.*",
    "linear_test": "Linear.EveryKind*:Linear.TilesAndPanels",
    "isa_test": "*",
    "model_test": "ModelOpen.EveryRouter",
    "run_sessions": "Kinds/BitsTest.*/even Kinds/BitsTest.*/nibble",
}
EMULATED = {"cuda_ops_test": "CudaRoute.EveryRouter*", "cuda_matmul_test": "CudaMatmul.EveryKind*"}
ALSO_BUILT = ["amx", "avx512vnni", "scalar"]  # those of this architecture


def shown(name):
    """The code block that follows the name of the file in CONTRIBUTING.md."""
    with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as f:
        return re.search("^`" + re.escape(name) + r"`.*?^```cpp\n(.*?)^```", f.read(), re.S | re.M)[1]


def shown_line(macro):
    with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as f:
        return re.search("`(" + macro + r"\(.*?\))`", f.read())[1]


class Tree:
    def __init__(self, folder):
        self.root = os.path.join(folder, "tree")
        self.build = os.path.join(folder, "build")
        for path in lint.files(ROOT):
            to = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, path), to)

    def text(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as f:
            return f.read()

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as f:
            f.write(text)

    def add_line(self, path, line, before=None):
        """Adds a line at the end of a file, or before the text `before`."""
        text = self.text(path)
        at = len(text) if before is None else text.index(before)
        self.write(path, text[:at] + line + "\n" + text[at:])

    def touched(self):
        paths = [os.path.relpath(os.path.join(folder, n), self.root)
                 for folder, _, names in os.walk(self.root) for n in names]
        return sorted(p for p in paths if not self.same(p))

    def same(self, path):
        original = os.path.join(ROOT, path)
        if not os.path.exists(original):
            return False
        with open(original, "rb") as a, open(os.path.join(self.root, path), "rb") as b:
            return a.read() == b.read()

    def run(self, *command):
        done = subprocess.run(command, cwd=self.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise AssertionError(" ".join(command) + "\n" + done.stdout[-6000:])
        return done.stdout


class Additions(unittest.TestCase):
    def test_one_file_and_one_line_each(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        tree = Tree(folder.name)
        with self.subTest("what is touched"):
            self.add(tree, "kernels/router/list.h", "kernels/router/even.h", shown_line("MOE_ROUTER"))
            self.add(tree, "quant/list.h", "quant/nibble.h", shown_line("MOE_WEIGHT_FORMAT"))
            self.add_isa(tree)
            self.assertEqual(len(tree.touched()), 6, tree.touched())
        tests = dict(TESTS, **(EMULATED if "--emulator" in sys.argv else {}))
        listed = re.findall(r"^MOE_ISA\((\w+), *(\w+)", tree.text("kernels/cpu/isa/list.h"), re.M)
        here = [name for name, cpu in listed if cpu in ("any", os.uname().machine) and name in ALSO_BUILT + ["plain"]]
        tree.run("cmake", "-G", "Ninja", "-B", tree.build, "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0 -g0",
                 "-DMOE_CUDA=OFF", "-DMOE_ISAS=" + ";".join(here))
        tree.run("cmake", "--build", tree.build, "--target", *tests)
        for name, what in tests.items():
            for pattern in what.split():
                with self.subTest(name, pattern=pattern):
                    out = tree.run(os.path.join(tree.build, "tests", name), "--gtest_filter=" + pattern)
                    self.assertRegex(out, r"\[  PASSED  \] [1-9]\d* test")

    def add(self, tree, listed, path, line):
        tree.write(path, shown(path))
        tree.add_line(listed, line)

    def add_isa(self, tree):
        copy = tree.text("kernels/cpu/isa/scalar.cpp")
        tree.write("kernels/cpu/isa/plain.cpp", copy.replace("kernels_scalar", "kernels_plain").replace('"scalar"', '"plain"'))
        tree.add_line("kernels/cpu/isa/list.h", shown_line("MOE_ISA"), "MOE_ISA(scalar")


unittest.main(argv=sys.argv[:1])
