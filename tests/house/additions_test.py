#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adds what CONTRIBUTING.md shows to a copy of the tree, as it says, and tries it: a router, a token mixer, a weight format, an instruction
set, a subcommand, a block type of GGUF, a sampling filter and a C function. Usage: additions_test.py ROOT [BUILD] [--emulator]

BUILD: a finished build, which the subcommand is linked with; build/release in ROOT. --emulator: the CUDA kernels too.

The copy is built once, with all additions, and without the converter, which none of the tests here needs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import lint

ARGUMENTS = [a for a in sys.argv[1:] if not a.startswith("-")]
ROOT = os.path.abspath(ARGUMENTS[0])
BUILD = os.path.abspath(ARGUMENTS[1]) if len(ARGUMENTS) > 1 else os.path.join(ROOT, "build/release")
# target: the tests of it that are run
TESTS = {
    "quant_test": "WeightFormats.*",
    "kernels_test": "Router.* Mixers.*",
    "linear_test": "Linear.EveryKind*:Linear.TilesAndPanels",
    "isa_test": "*",
    "model_test": "ModelOpen.EveryRouter",
    "run_bits": "Kinds/BitsTest.*/even Kinds/BitsTest.*/nibble Kinds/BitsTest.*/mixer_average",
}
EMULATED = {"cuda_ops_test": "CudaRoute.EveryRouter*", "cuda_matmul_test": "CudaMatmul.EveryKind*"}
ALSO_BUILT = ["avx2", "scalar"]  # those of this architecture
# Nothing of kernels_test runs for long here.
QUICKER = """function(build_quicker)
  target_compile_options(kernels_test PRIVATE -O0)
  target_precompile_headers(kernels_test REUSE_FROM test_headers)
endfunction()
cmake_language(DEFER CALL build_quicker)
"""
FILTER_TEST = r"""
#include <cstdio>
#include "src/c_api/handles.h"
#include "src/run/default_sampling.h"

int main() {
  const moe_sampling given = {.struct_size = sizeof given, .temperature = 1, .max_gap = 1.5f};
  moe::SamplingConfig config;
  if (!moe::sampling_config(&given, &config).ok()) return 1;
  moe::SamplingAdvice advice;
  advice.max_gap = 2;
  if (!moe::advises_sampling(advice) || moe::default_sampling(advice, 8).max_gap != 2) return 2;
  moe::Sampler sampler(moe::system_allocator());
  if (!sampler.init(3).ok()) return 3;
  const float logits[] = {3, 2, 1};
  int n[3] = {};
  for (uint64_t draw = 0; draw < 500; ++draw) {
    moe::TokenLogprob out{};
    if (!sampler.sample(config, logits, {}, draw, &out, nullptr, 0).ok()) return 4;
    ++n[out.token];
  }
  std::printf("%d\n", n[2]);
  config.max_gap = -1;
  std::puts(moe::validate(config, 3).text());
  return n[0] > 0 && n[1] > 0 ? 0 : 5;
}
"""
BLOCKS_TEST = r"""
#include <cstdio>
#include "formats/import/source_tensor.h"

int main() {
  const moe::SourceTypeInfo* const type = moe::find_gguf_type(9);
  if (type == nullptr) return 1;
  unsigned char block[36] = {0, 0x38, 1, 2, 3, 0xFE};  // 0.5, a sum, 3, -2, 0 ...
  float values[32];
  if (!moe::convert_to_f32(type->type, block, 32, values)) return 2;
  std::printf("%g %g %g %s\n", values[0], values[1], values[31], moe::gguf_type_names().c_str());
}
"""


def page():
    with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as f:
        return f.read()


def shown(name):
    """The code block in CONTRIBUTING.md that follows a paragraph with the name of the file."""
    for block in re.finditer(r"^```c(?:pp)?\n(.*?)^```", page(), re.S | re.M):
        if f"`{name}`" in page()[:block.start()].rstrip("\n").rsplit("\n\n", 1)[-1]:
            return block[1]
    raise AssertionError(f"CONTRIBUTING.md shows no {name}")


def shown_line(start):
    """The code in a line of text that begins so."""
    return re.search("`(" + re.escape(start) + r"[^`]*)`", page())[1]


class Tree:
    def __init__(self, folder):
        self.root = os.path.join(folder, "tree")
        self.build = os.path.join(folder, "build")
        for path in lint.files(ROOT):
            to = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, path), to)
        self.known = set()

    def text(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as f:
            return f.read()

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as f:
            f.write(text)

    def insert(self, path, text, before=None, after=None):
        """Adds text at the end of a file, before the text `before`, or behind the next `after[1]` that follows `after[0]`."""
        old = self.text(path)
        at = len(old)
        if before is not None:
            at = old.index(before)
        elif after is not None:
            at = old.index(after[1], old.index(after[0])) + len(after[1])
        self.write(path, old[:at] + text + old[at:])

    def replace(self, path, pattern, text):
        new, n = re.subn(pattern, lambda _: text, self.text(path), flags=re.S | re.M)
        assert n == 1, (path, pattern, n)
        self.write(path, new)

    def touched(self):
        """The files that differ from the original and did not at the last call."""
        paths = [os.path.relpath(os.path.join(folder, n), self.root)
                 for folder, _, names in os.walk(self.root) for n in names]
        new = {p for p in paths if not self.same(p)} - self.known
        self.known |= new
        return sorted(new)

    def same(self, path):
        original = os.path.join(ROOT, path)
        if not os.path.exists(original):
            return False
        with open(original, "rb") as a, open(os.path.join(self.root, path), "rb") as b:
            return a.read() == b.read()

    def run(self, *command, fails=False):
        done = subprocess.run(command, cwd=self.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if (done.returncode != 0) != fails:
            raise AssertionError(" ".join(command) + "\n" + done.stdout[-6000:])
        return done.stdout

    def compile(self, text, *arguments):
        """The program of this C++ text and of what the arguments name."""
        source, program = os.path.join(self.build, "tried.cpp"), os.path.join(self.build, "tried")
        with open(source, "w", encoding="utf-8") as f:
            f.write(text)
        generated = os.path.join(self.build, "generated")
        self.run("c++", "-std=c++20", "-O0", f"-I{self.root}", f"-isystem{generated}", "-o", program, source, *arguments)
        return program


class Additions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.tree = tree = Tree(folder.name)
        cls.files = {}
        for name in ("router", "mixer", "weight format", "instruction set", "subcommand", "block type", "filter", "function"):
            getattr(cls, "add_" + name.replace(" ", "_"))(tree)
            cls.files[name] = tree.touched()
        cls.tests = dict(TESTS, **(EMULATED if "--emulator" in sys.argv else {}))
        listed = re.findall(r"^MOE_ISA\((\w+), *(\w+)", tree.text("kernels/cpu/isa/list.h"), re.M)
        here = [name for name, cpu in listed if cpu in ("any", os.uname().machine) and name in ALSO_BUILT + ["plain"]]
        quicker = os.path.join(folder.name, "quicker.cmake")
        with open(quicker, "w", encoding="utf-8") as f:
            f.write(QUICKER)
        tree.run("cmake", "-G", "Ninja", "-B", tree.build, "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0 -g0",
                 "-DMOE_CUDA=OFF", "-DMOE_QUICK_BUILD=ON", "-DMOE_ISAS=" + ";".join(here),
                 "-DCMAKE_PROJECT_moe_INCLUDE=" + quicker)
        tree.run("cmake", "--build", tree.build, "--target", *cls.tests)

    @staticmethod
    def add(tree, listed, path, line):
        tree.write(path, shown(path))
        tree.insert(listed, line + "\n")

    @staticmethod
    def add_router(tree):
        Additions.add(tree, "kernels/router/list.h", "kernels/router/even.h", shown_line("MOE_ROUTER("))

    @staticmethod
    def add_mixer(tree):
        Additions.add(tree, "kernels/mixers/list.h", "kernels/mixers/average.h", shown_line("MOE_MIXER("))

    @staticmethod
    def add_weight_format(tree):
        Additions.add(tree, "quant/list.h", "quant/nibble.h", shown_line("MOE_WEIGHT_FORMAT("))

    @staticmethod
    def add_instruction_set(tree):
        copy = tree.text("kernels/cpu/isa/scalar.cpp")
        tree.write("kernels/cpu/isa/plain.cpp", copy.replace("kernels_scalar", "kernels_plain").replace('"scalar"', '"plain"'))
        tree.insert("kernels/cpu/isa/list.h", shown_line("MOE_ISA(") + "\n", before="MOE_ISA(scalar")

    @staticmethod
    def add_subcommand(tree):
        Additions.add(tree, "cli/list.h", "cli/text/count.cpp", shown_line("MOE_COMMAND("))

    @staticmethod
    def add_block_type(tree):
        tree.insert("formats/import/gguf_blocks.cpp", shown("formats/import/gguf_blocks.cpp") + "\n", before="}  // namespace moe\n")
        tree.replace("formats/import/source_types.h", r'^MOE_GGUF_OTHER\(9, "Q8_1"\)$', shown_line("MOE_GGUF_TYPE("))

    @staticmethod
    def add_filter(tree):
        tree.insert("include/moe_c.h", "  " + shown_line("float max_gap;") + "\n", before="} moe_sampling;")
        tree.insert("formats/moe/moe.fbs", "  " + shown_line("max_gap: float") + "\n", after=("table Sampling", "whole text\n"))
        for path, start in (("src/model", "MOE_SAMPLING_FILTER(max_gap, 0"), ("cli/model", "MOE_SAMPLING_FILTER(max_gap, \"")):
            tree.insert(path + "/sampling_list.h", shown_line(start) + "\n", before="// clang-format on")
        tree.replace("src/run/sampler.cpp", r"^float least_p\(.*?\}\n", shown("src/run/sampler.cpp"))

    @staticmethod
    def add_function(tree):
        tree.insert("include/moe_c.h", "\n" + shown("include/moe_c.h"), after=("moe_model_tokenizer(const", ";\n"))
        tree.insert("src/c_api/tokenizer.cpp", "\n" + shown("src/c_api/tokenizer.cpp"))
        tree.run(sys.executable, "-B", "bindings/generate.py")

    def test_files(self):
        self.assertEqual(self.files, {
            "router": ["kernels/router/even.h", "kernels/router/list.h"],
            "mixer": ["kernels/mixers/average.h", "kernels/mixers/list.h"],
            "weight format": ["quant/list.h", "quant/nibble.h"],
            "instruction set": ["kernels/cpu/isa/list.h", "kernels/cpu/isa/plain.cpp"],
            "subcommand": ["cli/list.h", "cli/text/count.cpp"],
            "block type": ["formats/import/gguf_blocks.cpp", "formats/import/source_types.h"],
            "filter": ["cli/model/sampling_list.h", "formats/moe/moe.fbs", "include/moe_c.h", "src/model/sampling_list.h",
                       "src/run/sampler.cpp"],
            # and include/moe_c.h; what is in `bindings` is generated
            "function": ["bindings/python/src/moe/_functions.py", "bindings/python/src/moe/_structs.py",
                         "bindings/rust/src/sys.rs", "src/c_api/tokenizer.cpp"],
        })

    def test_programs(self):
        for name, what in self.tests.items():
            for pattern in what.split():
                with self.subTest(name, pattern=pattern):
                    out = self.tree.run(os.path.join(self.tree.build, "tests", name), "--gtest_filter=" + pattern)
                    self.assertRegex(out, r"\[  PASSED  \] [1-9]\d* test")

    def test_subcommand(self):
        """main.cpp and the new file are compiled; the rest of the command comes from BUILD, behind them."""
        rest = os.path.join(BUILD, "cli/CMakeFiles/moe_cli.dir")
        objects = [os.path.join(folder, n) for folder, _, names in os.walk(rest) for n in names if n.endswith(".o")]
        self.assertTrue(objects, f"{rest}: no objects of the command")
        names = ("libmoe.so", "libmoe_convert.so", "libmoe_serve.so")
        libraries = [path for n in names if os.path.exists(path := os.path.join(BUILD, "lib", n))]
        with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
            libraries += re.findall(r"^MOE_(?:edit|microhttpd)_LIBRARY:\w+=(/.+)$", f.read(), re.M)
        moe = self.tree.compile('#include "cli/main.cpp"\n#include "cli/text/count.cpp"\n', *objects, *libraries,
                                "-Wl,--allow-multiple-definition", "-Wl,-rpath," + os.path.join(BUILD, "lib"))
        model = "examples/models/stories.moe"
        self.assertEqual(self.tree.run(moe, "count", model, "-p", "Once upon a time"), "5\n")
        self.assertEqual(self.tree.run(moe, "count", model, "-p", "Once upon a time", "--json"), '{\n  "tokens": 5\n}\n')
        for made_from_it in (["--help"], ["man"], ["completion", "bash"]):
            self.assertRegex(self.tree.run(moe, *made_from_it), r"\bcount\b")
        with open(os.path.join(self.tree.build, "build.ninja"), encoding="utf-8") as f:
            self.assertIn("moe_cli", f.read())
        with open(os.path.join(self.tree.build, "cli/CMakeFiles/moe_cli.dir/Unity/unity_0_cxx.cxx"), encoding="utf-8") as f:
            self.assertIn("/cli/text/count.cpp", f.read())

    def test_block_type(self):
        sources = [f"formats/import/{n}.cpp" for n in ("source_tensor", "gguf_blocks", "gguf_k_blocks", "gguf_codebooks")]
        sources += ["quant/codebook.cpp"]
        out = self.tree.run(self.tree.compile(BLOCKS_TEST, *sources))
        self.assertRegex(out, r"^1.5 -1 0 F16, .*Q8_1")

    def test_filter(self):
        library = os.path.join(self.tree.build, "lib/libmoe_core_tested.a")
        out = self.tree.run(self.tree.compile(FILTER_TEST, library, "-lzstd", "-lpcre2-8", "-lutf8proc", "-lpthread", "-ldl"))
        self.assertEqual(out, "0\nsampling: max_gap: expected 0..1e6, found -1\n")
        self.tree.run("c++", "-std=c++20", f"-I{self.tree.root}", "-fsyntax-only", "cli/model/sampling.cpp",
                      "cli/batch/batch_request.cpp")

    def test_function(self):
        symbols = self.tree.run("nm", os.path.join(self.tree.build, "lib/libmoe_core_tested.a"))
        self.assertIn(" T moe_model_has_text\n", symbols)
        for path in self.files["function"]:
            if path.endswith(("_functions.py", "sys.rs")):
                self.assertIn("moe_model_has_text", self.tree.text(path))
        missing = self.tree.run(sys.executable, "-B", "tests/house/bindings_test.py", self.tree.root, fails=True)
        for name in ("moe_model_has_text", "moe_sampling.max_gap"):
            self.assertIn(f"{name}: neither wrapped nor named with a reason", missing)


unittest.main(argv=sys.argv[:1])
