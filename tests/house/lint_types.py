#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""No two headers of the library define a type of the same name in the same namespace: the linker would merge their
inline functions. Usage: lint_types.py ROOT"""

import os
import re
import sys

import lint

LIBRARY = ("src/", "quant/", "kernels/", "formats/", "include/")
# A specialisation (NAME<...>) is not another type of the name.
DEFINITION = re.compile(r"^namespace ([\w:]*) ?\{|^(?:struct|class|union|enum class|enum) (\w+)\b(?!<)[^;()]*\{", re.M)


def main():
    root = sys.argv[1]
    faults = []
    seen = {}
    for path in lint.sources(root):
        if not path.startswith(LIBRARY) or not path.endswith(".h"):
            continue
        text = lint.code(os.path.join(root, path))
        namespace = ""
        for found in DEFINITION.finditer(text):
            if found[1] is not None:
                namespace = found[1]
                continue
            name = f"{namespace}::{found[2]}"
            line = text.count("\n", 0, found.start()) + 1
            if name in seen:
                faults.append(f"{path}:{line}: {name} is also defined at {seen[name]}")
            seen[name] = f"{path}:{line}"
    lint.report("types", faults, len(seen))


main()
