#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs and libraries are hardened. Usage: hardening_test.py FILE...

Every program and library is position-independent, has full RELRO, has no memory that is both writable
and executable, uses stack protectors and calls the fortified functions of the C library. On x86-64 the
object files are marked for IBT and SHSTK; the linker drops the marks if any input (such as Debian's
libzstd.a) has none.
"""

import platform
import re
import subprocess
import sys

import lint


def readelf(option, path):
    return subprocess.run(["readelf", option, "-W", path], capture_output=True, text=True, check=True).stdout


def of_program(path, header):
    dynamic, segments, symbols = readelf("-d", path), readelf("-l", path), readelf("--dyn-syms", path)
    stack = re.search(r"GNU_STACK.*\b(R\w*) +0x", segments)
    wanted = {
        "position-independent code": "DYN (" in header,
        "the mark of a position-independent program":
            "INTERP" not in segments or re.search(r"FLAGS_1.*\bPIE\b", dynamic),
        "BIND_NOW": re.search(r"FLAGS.*\b(BIND_NOW|NOW)\b", dynamic),
        "RELRO": "GNU_RELRO" in segments,
        "a stack that is not executed": stack and "E" not in stack[1],
        "no segment that is written and executed": not re.search(r"LOAD.* RWE ", segments),
        "__stack_chk_fail": "__stack_chk_fail" in symbols,
        "functions ending in _chk": re.search(r"__\w+_chk\b", symbols),
    }
    return [what for what, there in wanted.items() if not there]


def of_object(path):
    marked = platform.machine() != "x86_64" or "x86 feature: IBT, SHSTK" in readelf("-n", path)
    return [] if marked else ["x86 feature: IBT, SHSTK"]


def faults(path):
    header = readelf("-h", path)
    missing = of_object(path) if "REL (" in header else of_program(path, header)
    return [f"{path}: expected {what}, found none" for what in missing]


def main():
    paths = sys.argv[1:]
    found = [fault for path in paths for fault in faults(path)]
    objects = [path for path in paths if path.endswith(".o")]
    if objects and not any("__stack_chk_fail" in readelf("-s", path) for path in objects):
        found.append("no object file checks its stack")  # in a library, zstd's code alone might
    lint.report("hardening", found, len(paths))


main()
