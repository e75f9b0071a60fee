#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The symbols that a library exports and needs. Usage: lint_symbols.py core|convert|serve|bare LIBRARY | isa BUILD_DIR

core:    exports moe_* only, and needs no function that throws, allocates without the library's
         allocator, ends the process or prints
convert, serve: export moe_* only
bare:    a static library without an operating system needs zstd, and of the C library the functions on
         memory and strings and the mathematical ones
isa:     an object file of kernels/cpu/isa has one external symbol, its table (two if another set's
         table shares its code), and no symbol that the linker could merge between instruction sets
"""

import pathlib
import re
import subprocess
import sys

import lint

FORBIDDEN_IN_CORE = re.compile(
    r"_Zn[wa]|_Zd[la]|__cxa_(throw|rethrow|begin_catch|allocate_exception|guard|pure_virtual)|_Unwind"
    r"|_ZSt\d+__throw|_ZNSt|_ZNKSt|_ZTV|__assert|(abort|_?exit|quick_exit|signal|raise)(@|$)"
    r"|(__)?(v|f|vf|d)?printf(_chk)?(@|$)|f?puts(@|$)|putchar|perror|stdout|stderr")

ALLOWED_IN_BARE = re.compile(
    r"mem(chr|cmp|cpy|move|set)$|str(chr|cmp|len|ncmp|rchr)$|(ceil|floor|fma|ilogb|ldexp|sqrt)f?$"
    r"|ZSTD_\w+$|__stack_chk_(fail|guard)$|__(mem|str)\w+_chk$|_GLOBAL_OFFSET_TABLE_$")


def nm(*args):
    lines = subprocess.run(["nm", *args], capture_output=True, text=True, check=True).stdout
    return [line.split() for line in lines.splitlines() if line.strip()]


def library(path, is_core):
    exported = [s[-1] for s in nm("-D", "--defined-only", path)]
    exported = [s for s in exported if not re.match(r"MOE_[\d.]+(@@MOE_[\d.]+)?$", s)]
    faults = [f"{path} exports {s}" for s in exported if not s.startswith("moe_")]
    needed = [s[-1] for s in nm("-D", "--undefined-only", path)]
    if is_core:
        faults += [f"{path} needs {s}" for s in needed if FORBIDDEN_IN_CORE.match(s)]
    lint.report("symbols", faults, len(exported))


def isa(build_dir):
    objects = sorted(pathlib.Path(build_dir).glob("**/cpu/isa/*.o"))
    faults = []
    for path in objects:
        symbols = [s for s in nm("--defined-only", "--extern-only", str(path))]
        wanted = 2 if path.name.startswith(("amx", "avx512vnni", "avx2", "neon_dotprod")) else 1
        if not 1 <= len(symbols) <= wanted or any(s[1] in "WVu" for s in symbols):
            faults.append(f"{path.name}: expected at most {wanted} strong symbols, found " +
                          (", ".join(f"{s[1]} {s[2]}" for s in symbols) or "none"))
    lint.report("isa objects", faults, len(objects))


def bare(path):
    symbols = [s for s in nm(path) if len(s) >= 2]
    defined = {s[-1] for s in symbols if s[-2] != "U"}
    needed = sorted({s[-1] for s in symbols if s[-2] == "U"} - defined)
    if "ZSTD_decompressDCtx" not in needed:
        lint.report("bare", [f"{path}: no object of it needs zstd: is it the whole library?"], 0)
    lint.report("bare", [f"{path} needs {s}" for s in needed if not ALLOWED_IN_BARE.match(s)], len(needed))


if sys.argv[1] == "isa":
    isa(sys.argv[2])
if sys.argv[1] == "bare":
    bare(sys.argv[2])
library(sys.argv[2], sys.argv[1] == "core")
