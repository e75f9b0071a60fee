# SPDX-License-Identifier: MIT
"""The declarations of a C header, as the writers of the languages need them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Optional, Union


@dataclasses.dataclass(frozen=True)
class Named:
    """A type by its name: "int32_t", "void", "moe_env"."""

    name: str
    const: bool = False


@dataclasses.dataclass(frozen=True)
class Pointer:
    to: "Type"
    const: bool = False


@dataclasses.dataclass(frozen=True)
class Array:
    of: "Type"
    length: int


@dataclasses.dataclass(frozen=True)
class FunctionPointer:
    result: "Type"
    parameters: tuple[tuple[str, "Type"], ...]


Type = Union[Named, Pointer, Array, FunctionPointer]
VOID = Named("void")


@dataclasses.dataclass(frozen=True)
class Value:
    """A constant of an enum, a macro that is a number, or a field or parameter with its type."""

    name: str
    what: Union[int, Type]
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class Enum:
    name: Optional[str]  # None: only its constants have names
    constants: tuple[Value, ...]
    doc: str = ""

    @property
    def prefix(self) -> str:
        """The words with which each constant begins: "MOE_KV_" of MOE_KV_F16 and MOE_KV_INT8."""
        words = [c.name.split("_")[:-1] for c in self.constants]
        common = 0
        while all(len(w) > common and w[common] == words[0][common] for w in words):
            common += 1
        return "".join(f"{word}_" for word in words[0][:common])

    def names(self) -> list[tuple[str, Value]]:
        """Each constant with its name behind the prefix."""
        return [(c.name[len(self.prefix):], c) for c in self.constants]


@dataclasses.dataclass(frozen=True)
class Struct:
    name: str
    fields: Optional[tuple[Value, ...]]  # None: opaque
    doc: str = ""

    @property
    def sized(self) -> bool:
        """Whether it begins with its own size."""
        return bool(self.fields) and self.fields[0].name == "struct_size"


@dataclasses.dataclass(frozen=True)
class Alias:
    """A typedef of a function pointer or of another type."""

    name: str
    type: Type
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    result: Type
    parameters: tuple[tuple[str, Type], ...]
    doc: str = ""


@dataclasses.dataclass
class Header:
    """Everything in the order of the header, by name."""

    macros: list[Value] = dataclasses.field(default_factory=list)
    enums: list[Enum] = dataclasses.field(default_factory=list)
    structs: dict[str, Struct] = dataclasses.field(default_factory=dict)
    aliases: dict[str, Alias] = dataclasses.field(default_factory=dict)
    functions: dict[str, Function] = dataclasses.field(default_factory=dict)

    def uses(self) -> Iterator[tuple[str, Type]]:
        """Every type, with the name of what it is in."""
        for struct in self.structs.values():
            yield from ((f"{struct.name}.{f.name}", f.what) for f in struct.fields or ())
        yield from ((alias.name, alias.type) for alias in self.aliases.values())
        for function in self.functions.values():
            yield function.name, FunctionPointer(function.result, function.parameters)

    @property
    def named_enums(self) -> list[Enum]:
        return [e for e in self.enums if e.name]

    @property
    def loose_constants(self) -> list[Value]:
        """Macros that are numbers, and the constants of enums without a name."""
        return self.macros + [c for e in self.enums if not e.name for c in e.constants]


def references(kind: Type, through_pointers: bool = True) -> set[str]:
    """The names in a type."""
    if isinstance(kind, Named):
        return {kind.name}
    if isinstance(kind, Pointer):
        return references(kind.to) if through_pointers else set()
    if isinstance(kind, Array):
        return references(kind.of, through_pointers)
    parts = [kind.result, *(p for _, p in kind.parameters)]
    return set().union(*(references(p) for p in parts)) if through_pointers else set()
