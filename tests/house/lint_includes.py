#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A file includes only from its own folder and from those that ROWS allows, and only src/base/os the headers of
the operating system. Usage: lint_includes.py ROOT"""

import os
import re
import sys

import lint

# The interface to the kernels, and the names and checks of its parameters.
SEAM = ["kernels/sample.h", "kernels/device.h", "kernels/expert_memory.h", "kernels/expert_source.h",
        "kernels/rope.h", "kernels/hadamard.h", "kernels/row_source.h", "kernels/router/names.h", "kernels/router/router.h", "kernels/router/table.h", "kernels/router/text.h",
        "kernels/mixers/table.h", "kernels/math.h", "kernels/math_four.h"]
# The description of a model, without running it.
MODEL_WORDS = ["src/model/config.h", "src/model/sampling_list.h", "src/model/names.h", "src/model/tensors.h", "kernels/router/table.h",
               "kernels/mixers"]
# folder: what it may include besides itself. The longest matching folder applies to a path.
ROWS = {
    "include": [],
    "src/base": ["include/moe_c.h"],
    "quant": ["src/base"],
    "kernels": ["quant", "src/base"],
    "formats/moe": ["kernels/mixers/table.h", "quant", "src/base"],  # the names of mixers
    "formats/import": ["quant", "src/base"],
    "src/model": ["formats/moe", "quant", "src/base"] + SEAM,
    "src/text": ["src/base"],
    "src/grammar": ["src/text", "src/base"],
    "src/run": ["src/model", "src/grammar", "src/text", "quant", "src/base"] + SEAM,
    # src/text: a tokenizer is checked before anything is written
    "src/convert": MODEL_WORDS + ["src/text", "formats", "quant", "src/base"],
    # runs the model that is converted
    "src/convert/calibration": ["src/convert", "src/run", "src/model", "kernels", "formats", "quant", "src/base"],
    "src/convert/split": ["src/convert", "kernels", "formats", "quant", "src/base"],
    "src/serve": ["include/moe_c.h"],
    "src/c_api": ["src", "formats/moe", "kernels", "quant", "include"],
    "cli": ["include/moe_c.h", "moe_c.h"],
    "bindings": ["moe_c.h"],
    # built by npm without the rest of the tree
    "bindings/node/src": ["moe_c.h", "functions.h", "handle.h", "js.h", "layer.h", "names.h", "owner.h",
                          "work.h"],
    "examples": ["moe_c.h"],
    "tests": [""],
}
# Code for one instruction set includes only C headers and intrinsics: the linker might keep its copy of
# an inline std:: function for the whole library.
ISA_FILES = re.compile(r"kernels/cpu/(isa/.*\.cpp|generic/.*\.inc)$")

# Only src/base/os calls the operating system, in the library. The core also has no use for the C++ library's
# own ways there, or for printf: the folder `none` has neither.
LIBRARY = ("src/", "quant/", "kernels/", "formats/")
CONVERTER = ("src/serve/", "src/convert/", "formats/import/", "src/c_api/convert.cpp", "kernels/cuda/")
OS = "src/base/os/"
SYSTEM = re.compile(r"(sys|linux|asm|mach|machine|netinet)/|(unistd|fcntl|pthread|dlfcn|link|sched|time|poll|signal|dirent|"
                    r"windows|io|process|semaphore|spawn|locale|xlocale|setjmp|termios|elf|pwd)\.h$|c(time|signal|locale|setjmp)$")
SYSTEM_OF_CXX = re.compile(r"(thread|mutex|shared_mutex|condition_variable|future|semaphore|chrono|fstream|iostream|"
                           r"filesystem|cstdio|random|locale)$|stdio\.h$")


def calls_system(path, target):
    if not path.startswith(LIBRARY) or path.startswith(OS):
        return False
    return bool(SYSTEM.match(target) or (not path.startswith(CONVERTER) and SYSTEM_OF_CXX.match(target)))


def of_another_system(path, target):
    """Files of one system are included by its own alone."""
    found = re.match(OS + r"(\w+)/", target)
    return bool(found) and path.startswith(LIBRARY) and not path.startswith(found[0])


def row(path):
    fits = [f for f in ROWS if path.startswith(f + "/")]
    return max(fits, key=len) if fits else None


def allowed(path, target):
    own = row(path)
    return any(target == p or p == "" or target.startswith(p + "/") for p in [own] + ROWS[own])


def main():
    root = sys.argv[1]
    faults = []
    paths = lint.sources(root)
    for path in paths:
        if row(path) is None:
            faults.append(f"{path}: its folder has no row in lint_includes.py")
            continue
        with open(os.path.join(root, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                found = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
                if not found:
                    continue
                quoted, target = found[1] == '"', found[2]
                if quoted and not allowed(path, target):
                    faults.append(f"{path}:{number}: {row(path)} must not include {target}")
                if not quoted and calls_system(path, target):
                    faults.append(f"{path}:{number}: <{target}> is of the operating system: src/base/os calls it")
                if quoted and of_another_system(path, target):
                    faults.append(f"{path}:{number}: {target} is of one operating system")
                if not quoted and ISA_FILES.search(path) and not target.endswith(".h"):
                    faults.append(f"{path}:{number}: C++ header <{target}> in code for one ISA")
    lint.report("includes", faults, len(paths))


main()
