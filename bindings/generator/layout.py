# SPDX-License-Identifier: MIT
"""Sizes and offsets of structs on a machine with 64-bit pointers, by the rule that all its C compilers
follow: a field begins at a multiple of its alignment, and a struct ends at one. Tests compare them with a
compiler's (tests/house/bindings_test.py)."""

from __future__ import annotations

from .model import Array, Header, Named, Type

SIZES = {"bool": 1, "char": 1, "int": 4, "float": 4, "double": 8, "size_t": 8, "ptrdiff_t": 8, "intptr_t": 8,
         "uintptr_t": 8, **{f"{kind}{8 * size}_t": size for kind in ("int", "uint") for size in (1, 2, 4, 8)}}
POINTER = 8

Layout = tuple[int, dict[str, int]]  # of a struct: its size, and each field's offset


def _up(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


class _Layouts:
    def __init__(self, header: Header) -> None:
        self.header, self.done = header, {}
        self.enums = {e.name for e in header.named_enums}

    def size(self, kind: Type) -> tuple[int, int]:
        """Size and alignment."""
        if isinstance(kind, Array):
            size, alignment = self.size(kind.of)
            return size * kind.length, alignment
        if not isinstance(kind, Named):
            return POINTER, POINTER
        if kind.name in self.header.aliases:
            return self.size(self.header.aliases[kind.name].type)
        if kind.name in self.header.structs:
            fields = self.header.structs[kind.name].fields
            return self.struct(kind.name)[0], max(self.size(f.what)[1] for f in fields)
        size = 4 if kind.name in self.enums else SIZES[kind.name]
        return size, size

    def struct(self, name: str) -> Layout:
        if name not in self.done:
            end, most, offsets = 0, 1, {}
            for field in self.header.structs[name].fields:
                size, alignment = self.size(field.what)
                offsets[field.name] = _up(end, alignment)
                end, most = offsets[field.name] + size, max(most, alignment)
            self.done[name] = _up(end, most), offsets
        return self.done[name]


def layouts(header: Header) -> dict[str, Layout]:
    """The layout of each struct whose fields are declared."""
    found = _Layouts(header)
    return {name: found.struct(name) for name, struct in header.structs.items() if struct.fields}
