#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""No library in the current directory is loaded. Usage: foreign_code_test.py BUILD_DIR MODEL HOSTILE

HOSTILE is a library that ends the process that loads it. Copies of it are put in the current directory
under the names of the CUDA module and of every library that the command and its libraries need.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, MODEL, HOSTILE = (os.path.abspath(p) for p in sys.argv[1:4])
MOE = os.path.join(BUILD, "bin/moe")
PLACES_ITSELF = """
import ctypes, os, sys
os.chdir(sys.argv[1])
library = ctypes.CDLL("lib/libmoe.so")
os.chdir(sys.argv[2])
env, error = ctypes.c_void_p(), ctypes.create_string_buffer(1024)
sys.exit(library.moe_env_create(None, ctypes.byref(env), error))
"""


def needed():
    names = {"libmoe_cuda.so", "libcublasLt.so", "libgcc_s.so.1"}
    for path in (MOE, *(os.path.join(BUILD, "lib", n) for n in ("libmoe.so", "libmoe_convert.so", "libmoe_serve.so"))):
        text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True)
        names.update(re.findall(r"\(NEEDED\).*\[(.*)\]", text.stdout))
    return names


class ForeignCode(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def plant(self, *names):
        for name in names:
            path = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy(HOSTILE, path)

    def runs(self, command, **kwargs):
        found = subprocess.run(command, capture_output=True, text=True, **kwargs)
        self.assertNotIn("foreign code", found.stderr)
        self.assertEqual(found.returncode, 0, found.stderr)

    def generate(self, **kwargs):
        self.runs([MOE, "generate", MODEL, "-p", "Once", "-n", "2"], cwd=self.folder, **kwargs)

    def test_loading_the_hostile_library_ends_the_process(self):
        loaded = subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({HOSTILE!r})"],
                                capture_output=True)
        self.assertEqual(loaded.returncode, 66)

    def test_current_directory(self):
        self.plant(*needed())
        self.generate()

    def test_module_on_the_library_path(self):
        self.plant("libmoe_cuda.so")
        for path in (self.folder, ".", ""):
            self.generate(env={**os.environ, "LD_LIBRARY_PATH": path})

    def test_the_command_by_another_name(self):  # the loader gets the program's name from argv[0]
        self.plant("libmoe_cuda.so")
        self.runs(["./moe", "generate", MODEL, "-p", "Once", "-n", "2"], cwd=self.folder, executable=MOE)

    def test_library_by_a_relative_path(self):
        self.plant("lib/libmoe_cuda.so")
        self.runs([sys.executable, "-c", PLACES_ITSELF, BUILD, self.folder])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
