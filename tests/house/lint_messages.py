#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Messages name no file of the source tree: an installation does not have it.
Usage: lint_messages.py ROOT"""

import os
import re
import sys

import lint

ENDINGS = {
    (".h", ".inc", ".c", ".cc", ".cpp", ".cu", ".cuh", ".js", ".mjs", ".ts", ".go", ".rs"):
        r'//[^\n]*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|R"\((?:.*?)\)")',
    (".py",):
        r'#[^\n]*|(?P<text>"""(?:.*?)"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')',
}
FOLDERS = ("bindings/", "cli/", "formats/", "include/", "kernels/", "quant/", "src/")
DOCUMENT = re.compile(r"[\w./-]*\w\.md\b|\bREADME\b|\bdocs/\w+|\bCHANGELOG\b")


def strings(path, text):
    """The string literals of a source with their offsets; docstrings are comments."""
    for endings, pattern in ENDINGS.items():
        if not path.endswith(endings):
            continue
        for found in re.finditer(pattern, text, re.S):
            literal = found["text"]
            start = text.rfind("\n", 0, found.start()) + 1
            line = text[start:found.start()].strip()
            if literal and not literal.startswith('"""') and line != "#include":
                yield found.start(), literal


def faults_in(path, text):
    for at, literal in strings(path, text):
        for found in DOCUMENT.finditer(literal):
            yield f"{path}:{text.count(chr(10), 0, at) + 1}: {found[0]}: not in an installation"


def self_test():
    named = 'fail("known: %s (docs/checkpoints.md)");\n'
    assert len(list(faults_in("a.cpp", named))) == 1
    assert len(list(faults_in("a.py", "raise E('see README')\n"))) == 1
    free = '// docs/checkpoints.md\n#include "formats/README.h"\nfail("no such document");\n'
    assert not list(faults_in("a.cpp", free))


def main():
    root = sys.argv[1]
    self_test()
    faults, n = [], 0
    for path in lint.files(root):
        tests = "/tests/" in path or "/test/" in path
        if not path.startswith(FOLDERS) or tests or not path.endswith(sum(ENDINGS, ())):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as f:
            faults += faults_in(path, f.read())
        n += 1
    lint.report("messages", faults, n)


main()
