#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each source file begins with a comment that says what it is for, and no comment begins with "Of", "What" or "Which", which make
half a sentence that must be read twice. Usage: lint_comments.py ROOT"""

import os
import re
import sys

import lint

FOLDERS = ("src/", "kernels/", "quant/", "formats/", "cli/", "bindings/")  # whose files say what they are for
C_LIKE = lint.SOURCE_ENDINGS + (".go", ".rs", ".js", ".ts", ".fbs")
HASHED = (".py", ".sh", ".cmake", "CMakeLists.txt")
# Lines that may stand in front of the purpose.
FIRST = re.compile(r"\s*$|#!|#pragma once$|//go:build |.*SPDX-License-Identifier|// Code generated|['\"]use strict['\"];$")
# #![...] of Rust is code, and so is what the preprocessor reads.
COMMENT = {C_LIKE: re.compile(r"//|/\*"), HASHED: re.compile(r'#|r?"""')}
STARTS = {C_LIKE: re.compile(r"(?://+!?|/\*+!?|^\s*\*) *(.*)"), HASHED: re.compile(r'(?:(?:^|\s)#+|"""|#\[\[) *(.*)')}
HALF = re.compile(r"(Of|What|Which)\b(?![^.!]*\?)")  # a question may begin so


def kind_of(path):
    return next((kind for kind in (C_LIKE, HASHED) if path.endswith(kind)), None)


def has_purpose(path, lines):
    first = next((line for line in lines if not FIRST.match(line) and not line.startswith("#![")), "")
    return bool(COMMENT[kind_of(path)].match(first))


def half_sentences(path, lines):
    """Numbers of the lines where a comment begins so; lines that continue one are not looked at: those of whole-line
    comments, and those that stand below the comment behind code."""
    start, column = STARTS[kind_of(path)], None  # where a comment that may go on begins
    for number, line in enumerate(lines, 1):
        found = start.search(line)
        whole = bool(found) and not line[:found.start()].strip()
        if found and not (whole and found.start() == column) and HALF.match(found[1]):
            yield number
        # An opening """ alone begins a comment, a closing one ends it.
        goes_on = found and found[1].strip() not in ("", "*/") and "SPDX-License-Identifier" not in line
        column = found.start() if goes_on else None


def main():
    root = sys.argv[1]
    faults = []
    paths = [p for p in lint.files(root) if kind_of(p) and not p.startswith("tests/data/")]
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            lines = f.read().split("\n")
        if path.startswith(FOLDERS) and not path.endswith("CMakeLists.txt") and not has_purpose(path, lines):
            faults.append(f"{path}: expected a first comment that says what the file is for")
        faults += [f"{path}:{n}: {lines[n - 1].strip()}: expected a comment that is a sentence with a subject"
                   for n in half_sentences(path, lines)]
    lint.report("comments", faults, len(paths))


main()
