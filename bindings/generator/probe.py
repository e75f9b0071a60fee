# SPDX-License-Identifier: MIT
"""Sizes and values that a C compiler finds in the header, for tests: independent of the reader in header.py."""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
from typing import Any

from .header import Unknown, run_compiler
from .model import Header


def _lines(header: Header) -> list[str]:
    lines = []
    for struct in header.structs.values():
        if struct.fields is None:
            continue
        lines.append(f'printf("\\"{struct.name}\\": %zu,\\n", sizeof({struct.name}));')
        lines += [f'printf("\\"{struct.name}.{f.name}\\": [%zu, %zu],\\n", offsetof({struct.name}, {f.name}), '
                  f"sizeof((({struct.name}*)0)->{f.name}));" for f in struct.fields]
    constants = [c for e in header.enums for c in e.constants] + header.macros
    return lines + [f'printf("\\"{c.name}\\": %lld,\\n", (long long){c.name});' for c in constants]


def seen_by_c(path: pathlib.Path, header: Header) -> dict[str, Any]:
    """The size of each struct, [offset, size] of each field ("moe_error.text"), and each constant."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "probe.c"), pathlib.Path(folder, "probe")
        source.write_text(f'#include <stdio.h>\n#include "{path.name}"\nint main(void) {{\nputs("{{");\n'
                          + "\n".join(_lines(header)) + '\nputs("\\"end\\": 0}");\nreturn 0;\n}\n', encoding="utf-8")
        done = run_compiler(["-std=c99", f"-I{path.parent}", str(source), "-o", str(program)])
        if done.returncode:
            raise Unknown(done.stderr)
        return json.loads(subprocess.run([str(program)], check=True, capture_output=True).stdout)
