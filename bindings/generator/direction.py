# SPDX-License-Identifier: MIT
"""Tells what the caller gives to the library from what the library gives to the caller."""

from __future__ import annotations

from .model import FunctionPointer, Header, Named, Pointer, Type, references


def _const_struct(kind: Type) -> set[str]:
    """The struct that a parameter only reads."""
    return {kind.to.name} if isinstance(kind, Pointer) and isinstance(kind.to, Named) and kind.to.const else set()


def given_structs(header: Header) -> set[str]:
    """The structs that the caller fills, as a function takes them const, with those inside."""
    found: set[str] = set()
    left = set().union(*(_const_struct(kind) for f in header.functions.values() for _, kind in f.parameters))
    while left := (left & set(header.structs)) - found:
        name = left.pop()
        found.add(name)
        left |= set().union(*(references(f.what) for f in header.structs[name].fields or ()
                              if not isinstance(f.what, FunctionPointer)))
    return found


def returned_enums(header: Header) -> set[str]:
    """The enums whose values come from the library, which may be newer and have more of them: a result, a field of
    a struct that the library alone fills, a parameter of a callback."""
    given, enums = given_structs(header), {e.name for e in header.named_enums if e.name}
    names = set().union(*(references(f.result) for f in header.functions.values()))
    for name, struct in header.structs.items():
        for field in struct.fields or ():
            if name not in given or isinstance(field.what, FunctionPointer):
                names |= references(field.what)
    for alias in header.aliases.values():
        if isinstance(alias.type, FunctionPointer):
            names |= references(alias.type)
    return names & enums
