#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files contain no paths of one machine, unfinished work or merge conflicts. Usage: lint_words.py ROOT"""

import os
import re
import sys

import lint

HERE = "tests/house/lint_words.py"
FORBIDDEN = {
    "a path of one machine": rb"(?<![\w.$}])/(work|home/\w+|root|Users)/",
    "a path outside the repository": rb"\.\./shared\b",
    "unfinished": rb"\b(TODO|FIXME|XXX)\b",
    "a merge conflict": rb"^(<<<<<<<|>>>>>>>) ",
}


def main():
    root = sys.argv[1]
    faults = []
    paths = [p for p in lint.files(root) if p != HERE]
    for path in paths:
        with open(os.path.join(root, path), "rb") as f:
            text = f.read()
        if b"\0" in text:
            continue  # not text
        for why, pattern in FORBIDDEN.items():
            for found in re.finditer(pattern, text, re.M):
                line = text.count(b"\n", 0, found.start()) + 1
                faults.append(f"{path}:{line}: {found[0].decode().strip()}: {why}")
    lint.report("words", faults, len(paths))


main()
