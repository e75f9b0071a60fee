#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles each file of the unity builds of libraries and command alone, which finds missing includes.
Usage: each_file.py BUILD [core]

core: the files of libmoe alone; those of converter, service and command take two thirds of the time."""

import concurrent.futures
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

# Reading these takes most of the time of a file that includes one, so each is compiled once. A file uses the first of them
# that it includes, itself or through others: all that it then sees it does include, if perhaps only later.
HEAVY = ("cli/common.h", "src/serve/json.h", "src/convert/arch/decoder.h", "src/convert/importer.h", "formats/import/checkpoint.h",
         "src/run/session.h", "src/model/model.h", "kernels/device.h", "src/base/string.h", "src/base/array.h")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


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


# The folders of libmoe.
CORE = ("src/base/", "src/model/", "src/run/", "src/text/", "src/grammar/", "src/c_api/", "formats/moe/", "kernels/", "quant/")


def checks(build, core):
    """(file, command, folder) for each file of a unity build, once; core: of those of libmoe."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = [e for e in json.load(file) if "/Unity/" in e["file"]]
    found = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        end = min(words.index(w) for w in ("-MD", "-o") if w in words)  # dependency and object files follow
        flags = [w for w in without_precompiled(words[:end]) if not w.startswith(("-fsanitize", "-O"))]
        if "/tests/" in entry["file"].removeprefix(os.path.realpath(build)):
            continue
        for path in members(entry):
            if core and not os.path.relpath(path, ROOT).startswith(CORE):
                continue
            found.setdefault(path, (path, flags + ["-fsyntax-only", path], entry["directory"]))
    return list(found.values())


@functools.cache
def included(path):
    """Our files that a file includes, itself or through others. A generated header includes none of ours."""
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            direct = re.findall(r'^#include "(.+)"', file.read(), re.MULTILINE)
    except FileNotFoundError:
        return frozenset()
    return frozenset(direct).union(*(included(header) for header in direct))


def heavy_of(path):
    headers = included(os.path.relpath(path, ROOT))
    return next((h for h in HEAVY if h in headers), None)


def compile_heavy(job):
    """Compiles a header with the flags of a file that includes it, and the templates that every such file would instantiate."""
    header, flags, folder, output = job
    subprocess.run([*flags, "-fpch-instantiate-templates", "-x", "c++-header", os.path.join(ROOT, header), "-o", output],
                   cwd=folder, check=True)


def with_heavy_compiled(jobs, folder, pool):
    """The same jobs, with the HEAVY headers compiled once for all that include them and have the same flags."""
    compiled, changed = {}, []
    for path, command, where in jobs:
        flags, header = command[:-2], heavy_of(path)
        if header is not None:
            key = (header, *flags)
            compiled.setdefault(key, (header, flags, where, os.path.join(folder, f"{len(compiled)}.pch")))
            command = [*command[:-1], "-include-pch", compiled[key][3], path]
        changed.append((path, command, where))
    list(pool.map(compile_heavy, compiled.values()))
    return changed


def check(job):
    path, command, folder = job
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if run.returncode == 0 else f"{path} does not compile alone:\n{run.stderr}"


def main(build, core):
    jobs = checks(build, core)
    if not jobs:
        sys.exit(f"{build}: no files are compiled together; configure it with MOE_UNITY=ON")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(check, with_heavy_compiled(jobs, folder, pool)) if fault]
    print("\n".join(faults + [f"{len(jobs)} files, {len(faults)} failed"]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["core"]):
        sys.exit(__doc__)
    main(sys.argv[1], "core" in sys.argv[2:])
