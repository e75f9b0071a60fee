#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what the bindings repeat of include/moe_c.h. Usage: generate.py [--check]

--check writes nothing: it names the files that differ from what the header gives. The files are committed,
so only who changes the header needs this program, with a C compiler and python3-pycparser."""

import pathlib
import sys

from generator import enums, header, python, rust

BINDINGS = pathlib.Path(__file__).resolve().parent
HEADER = BINDINGS.parent / "include/moe_c.h"
ORIGIN = "Generated from include/moe_c.h by bindings/generate.py; do not edit."
FILES = {
    "rust/src/sys.rs": ("//", rust.sys),
    "rust/src/enums.rs": ("//", enums.rust),
    "go/enums.go": ("//", enums.go),
    "node/src/names.h": ("//", enums.node),
    "node/names.d.ts": ("//", enums.typescript),
    "python/src/moe/_constants.py": ("#", python.constants),
    "python/src/moe/_structs.py": ("#", python.structs),
    "python/src/moe/_functions.py": ("#", python.functions),
}


def generated(path=HEADER):
    """The text of each file, by its name in this folder."""
    declared = header.read(path)
    return {name: f"{mark} {ORIGIN}\n{mark} SPDX-License-Identifier: MIT\n\n{write(declared)}"
            for name, (mark, write) in FILES.items()}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    try:
        texts = generated()
    except (header.Unknown, ValueError) as e:
        sys.exit(f"generate.py: {e}")
    stale = [name for name, text in texts.items()
             if not (BINDINGS / name).is_file() or (BINDINGS / name).read_text(encoding="utf-8") != text]
    if sys.argv[1:]:
        if stale:
            sys.exit("".join(f"bindings/{name} is not what include/moe_c.h gives: run bindings/generate.py\n"
                             for name in stale))
        return
    for name in stale:
        (BINDINGS / name).write_text(texts[name], encoding="utf-8")
        print(f"bindings/{name}")


if __name__ == "__main__":
    main()
