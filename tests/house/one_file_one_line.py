#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adds an importer with one file and one line, as CONTRIBUTING.md says, to a scratch copy. Usage:
one_file_one_line.py ROOT BUILD"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = map(os.path.abspath, sys.argv[1:3])
LIBRARIES = ["-lzstd", "-lpcre2-8", "-lutf8proc", "-lpthread", "-lm", "-ldl"]
CONVERT = """#include <stdio.h>
#include "include/moe_c.h"

int main(int argc, char** argv) {
  moe_error error = {0};
  if (argc == 3 && moe_convert(argv[1], argv[2], NULL, &error) == MOE_OK) return 0;
  fprintf(stderr, "%s\\n", error.text);
  return 1;
}
"""


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{done.stdout[-4000:]}")


def compiler(language):
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        return re.search(rf"^CMAKE_{language}_COMPILER:\w+=(.+)$", f.read(), re.M)[1]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def weights(model):
    """The segments of a model file: the bytes between its header and its metadata."""
    return model[4096:int.from_bytes(model[24:32], "little")]


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.root = os.path.join(folder.name, "moe")
        self.build = os.path.join(folder.name, "build")
        unused = shutil.ignore_patterns("build*", ".*", "data", "results", "corpus")
        shutil.copytree(ROOT, self.root, ignore=unused)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def add(self, name, text, list_name, line):
        """Adds a file, and a line at the end of a list."""
        with open(os.path.join(self.root, name), "x", encoding="utf-8") as f:
            f.write(text)
        with open(os.path.join(self.root, list_name), "a", encoding="utf-8") as f:
            f.write(line + "\n")

    def source(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as f:
            return f.read()

    def test_readme_shows_the_importer(self):
        self.assertIn(self.source("src/convert/arch/olmo2.cpp"), self.source("src/convert/README.md"))

    def test_one_file_reads_the_list(self):
        """A new architecture compiles itself and this file: no header carries the list into others."""
        readers = [os.path.relpath(os.path.join(folder, name), ROOT)
                   for top in ("src", "formats", "tests") for folder, _, names in os.walk(os.path.join(ROOT, top))
                   for name in names if name.endswith((".h", ".cpp")) and '#include "src/convert/arch/list.h"' in
                   read(os.path.join(folder, name)).decode("utf-8")]
        self.assertEqual(readers, ["src/convert/importer.cpp"])

    def compile(self, *objects):
        run("cmake", "-G", "Ninja", "-S", self.root, "-B", self.build, "-DCMAKE_BUILD_TYPE=None", "-DMOE_UNITY=OFF",
            "-DMOE_ISAS=scalar", "-DMOE_CLI=OFF", "-DMOE_TESTS=OFF", f"-DCMAKE_C_COMPILER={compiler('C')}",
            f"-DCMAKE_CXX_COMPILER={compiler('CXX')}")
        run("cmake", "--build", self.build, "--target", *objects)

    def test_importer(self):
        text = self.source("src/convert/arch/olmo2.cpp").replace("olmo2", "dummy")
        self.add("src/convert/arch/dummy.cpp", text, "src/convert/arch/list.h", "MOE_ARCHITECTURE(dummy)")
        objects = [f"src/convert/CMakeFiles/moe_convert_convert.dir/{name}.cpp.o" for name in ("arch/dummy", "importer")]
        self.compile(*objects)

        # The rest comes from the existing build; the linker takes these two objects first.
        with open(self.path("convert.c"), "w", encoding="utf-8") as f:
            f.write(CONVERT)
        run(compiler("C"), "-c", "-I", self.root, "-o", self.path("convert.o"), self.path("convert.c"))
        run(compiler("CXX"), "-o", self.path("convert"), self.path("convert.o"),
            *(os.path.join(self.build, o) for o in objects), "-Wl,--allow-multiple-definition",
            os.path.join(BUILD, "lib/libmoe_internal.a"), *LIBRARIES)

        original, checkpoint = os.path.join(ROOT, "tests/data/families/olmo2"), self.path("checkpoint")
        shutil.copytree(original, checkpoint)
        config = json.loads(read(os.path.join(original, "config.json")))
        with open(os.path.join(checkpoint, "config.json"), "w", encoding="utf-8") as f:
            json.dump({**config, "model_type": "dummy"}, f)
        run(self.path("convert"), checkpoint, self.path("dummy.moe"))
        run(self.path("convert"), original, self.path("olmo2.moe"))
        dummy, olmo2 = read(self.path("dummy.moe")), read(self.path("olmo2.moe"))
        self.assertIn(b"dummy", dummy)
        self.assertGreater(len(weights(dummy)), 10000)
        self.assertEqual(weights(dummy), weights(olmo2))
        with self.assertRaisesRegex(AssertionError, 'unknown model_type "dummy"'):
            run(os.path.join(BUILD, "bin/moe"), "convert", checkpoint, self.path("not.moe"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
