#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles each file of the converter's, the service's and the command's unity builds alone, which finds missing includes.
Usage: each_file.py BUILD"""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

HEAVY = "cli/common.h"  # reading it takes most of the time of a file of the command


def members(entry):
    """The files that a unity file includes."""
    with open(entry["file"], encoding="utf-8") as file:
        return re.findall(r'^#include "(/[^"]+)"', file.read(), re.MULTILINE)


def without_precompiled(words):
    """The words without clang's flags for a precompiled header, -Xclang -include-pch -Xclang FILE and the same with -include."""
    rest = list(words)
    for flag in ("-include-pch", "-include"):
        while flag in rest:
            at = rest.index(flag)
            del rest[at - 1 : at + 3]
    return rest


def checks(build):
    """(file, command, folder) for each file of a unity build, once."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = [e for e in json.load(file) if "/Unity/" in e["file"]]
    found = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        if "-fno-exceptions" in words:  # the core, whose files other builds compile alone
            continue
        end = min(words.index(w) for w in ("-MD", "-o") if w in words)  # dependency and object files follow
        flags = [w for w in without_precompiled(words[:end]) if not w.startswith(("-fsanitize", "-O"))]
        if "/tests/" in entry["file"].removeprefix(os.path.realpath(build)):
            continue
        for path in members(entry):
            found.setdefault(path, (path, flags + ["-fsyntax-only", path], entry["directory"]))
    return list(found.values())


def begins_with_heavy(path, root):
    """Whether the first of our headers that a file includes is HEAVY, or one of which the same is true. Nothing of ours is
    declared before HEAVY then, so that compiling it beforehand hides nothing."""
    if not os.path.exists(path):  # a generated header
        return False
    with open(path, encoding="utf-8") as file:
        first = re.search(r'^#include "(.+)"', file.read(), re.MULTILINE)
    return bool(first) and (first[1] == HEAVY or begins_with_heavy(os.path.join(root, first[1]), root))


def with_heavy_compiled(jobs, folder):
    """The same jobs, with HEAVY compiled once for those that begin with it."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    compiled = os.path.join(folder, "heavy.pch")
    flags, where = next(((c[:-2], d) for path, c, d in jobs if os.path.relpath(path, root).startswith("cli/")), (None, None))
    if flags is None:
        return jobs
    subprocess.run([*flags, "-x", "c++-header", os.path.join(root, HEAVY), "-o", compiled], cwd=where, check=True)
    users = {path for path, c, _ in jobs if c[:-2] == flags and begins_with_heavy(path, root)}
    return [(p, c[:-1] + ["-include-pch", compiled, p], d) if p in users else (p, c, d) for p, c, d in jobs]


def check(job):
    path, command, folder = job
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if run.returncode == 0 else f"{path} does not compile alone:\n{run.stderr}"


def main(build):
    jobs = checks(build)
    if not jobs:
        sys.exit(f"{build}: no files are compiled together; configure it with MOE_UNITY=ON")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(check, with_heavy_compiled(jobs, folder)) if fault]
    print("\n".join(faults + [f"{len(jobs)} files, {len(faults)} failed"]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
