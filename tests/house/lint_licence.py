#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every source file names its licence, as SPDX asks. Usage: lint_licence.py ROOT [--add]

--add writes the line where it is missing.
"""

import os
import sys

import lint

LINE = "SPDX-License-Identifier: MIT"
SLASHES = (".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".inc", ".rs", ".go", ".js", ".mjs", ".ts", ".fbs")
HASHES = (".py", ".sh", ".cmake")
HASHED_NAMES = ("CMakeLists.txt", "Dockerfile")
# Files of others' formats, and what is compared byte by byte.
EXCEPT = ("tests/data/", "tests/golden/data/")


def comment(path):
    name = os.path.basename(path)
    if path.startswith(EXCEPT):
        return None
    if path == "include/moe_c.h":  # C of 1989 too
        return "/* " + LINE + " */"
    if name in HASHED_NAMES or name.endswith(HASHES):
        return "# " + LINE
    return "// " + LINE if name.endswith(SLASHES) else None


def main():
    root, add = sys.argv[1], "--add" in sys.argv[2:]
    missing = 0
    for path in lint.files(root):
        line = comment(path)
        full = os.path.join(root, path)
        if line is None or os.path.islink(full):
            continue
        with open(full, encoding="utf-8") as f:
            lines = f.read().split("\n")
        if any(LINE in one for one in lines[:3]):
            continue
        missing += 1
        if not add:
            print(f"{path}:1: no '{line}' in its first three lines")
            continue
        at = 1 if lines[0].startswith("#!") else 0
        lines[at:at] = [line, ""] if path.endswith(".go") else [line]  # not a part of Go's package comment
        with open(full, "w", encoding="utf-8") as f:
            f.write("\n".join(lines))
    if add:
        print(f"{missing} files changed")
    return 1 if missing and not add else 0


if __name__ == "__main__":
    sys.exit(main())
