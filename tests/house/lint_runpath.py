#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The loader searches for no library in the current directory. Usage: lint_runpath.py FOLDER...

Every element of a RUNPATH or RPATH is absolute or begins with $ORIGIN (an empty one would mean the
current directory), and no needed library is named by a relative path.
"""

import os
import re
import struct
import subprocess
import sys

import lint


def is_loaded(path):
    """Whether the path is a program or a shared library (not an object file)."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as f:
        head = f.read(18)
    return len(head) == 18 and head[:4] == b"\x7fELF" and struct.unpack("<H", head[16:])[0] in (2, 3)


def programs(folders):
    for top in folders:
        for folder, _, names in os.walk(top):
            yield from filter(is_loaded, (os.path.join(folder, n) for n in names))


def faults_of(path):
    text = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    for kind, value in re.findall(r"\((RPATH|RUNPATH|NEEDED)\)[^\[]*\[(.*)\]", text):
        if kind == "NEEDED":
            if "/" in value and not value.startswith("/"):
                yield f"{path}: needs {value}, a relative path"
            continue
        for element in value.split(":"):
            if not re.match(r"/|\$ORIGIN(/|$)", element):
                yield f"{path}: {kind} '{value}': '{element}' is neither absolute nor $ORIGIN"


if __name__ == "__main__":
    found = list(programs(sys.argv[1:]))
    lint.report("runpath", [fault for path in found for fault in faults_of(path)], len(found))
