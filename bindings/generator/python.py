# SPDX-License-Identifier: MIT
"""The ctypes declarations of the Python package: _constants.py, _structs.py and _functions.py."""

from __future__ import annotations

from .direction import given_structs
from .libraries import CONVERT, SERVE
from .model import (Array, Enum, Function, FunctionPointer, Header, Named, Pointer, Struct, Type, VOID, Value,
                    references)
from .text import camel, wrapped

SCALARS = {"bool": "c_bool", "char": "c_char", "float": "c_float", "double": "c_double", "int": "c_int",
           "size_t": "c_size_t", "ptrdiff_t": "c_ssize_t", "intptr_t": "c_ssize_t", "uintptr_t": "c_size_t",
           **{f"{kind}{bits}_t": f"c_{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}}
# An array of these is NumPy's: its address is given, after its type was checked.
IN_ARRAYS = {"void", "char", "float", "double", "int32_t"}


def class_name(name: str) -> str:
    return camel(name.split("_")[1:])


class Types:
    """The ctypes form of C's types."""

    def __init__(self, header: Header, module: str = "") -> None:
        self.header, self.module = header, module
        self.enums = {e.name for e in header.named_enums}

    def of(self, kind: Type, given: bool, counted: bool = False) -> str:
        """given: by the caller, who has arrays in NumPy and text in bytes. Otherwise it is the library's:
        an array has its type, and a text whose length is counted need not be terminated."""
        if isinstance(kind, Array):
            return f"{self.of(kind.of, given)} * {kind.length}"
        if isinstance(kind, FunctionPointer):
            return f"c.CFUNCTYPE({', '.join([self.result(kind.result), *self.parameters(kind.parameters, False)])})"
        if isinstance(kind, Pointer):
            return self.pointer(kind.to, given, counted)
        return self.named(kind.name)

    def named(self, name: str) -> str:
        if name in self.enums:
            return "c.c_int"
        if name in self.header.aliases:
            alias = self.header.aliases[name]
            return self.module + class_name(name) if isinstance(alias.type, FunctionPointer) else self.of(alias.type, True)
        if name in self.header.structs:
            return self.module + class_name(name)
        return f"c.{SCALARS[name]}"

    def pointer(self, to: Type, given: bool, counted: bool) -> str:
        if isinstance(to, Pointer):
            return f"c.POINTER({self.pointer(to.to, given, False)})"
        if isinstance(to, Named) and to.name == "char" and to.const:
            return "c.c_void_p" if counted and not given else "c.c_char_p"
        if isinstance(to, Named) and to.name in self.header.structs:
            opaque = self.header.structs[to.name].fields is None
            return "c.c_void_p" if opaque else f"c.POINTER({self.named(to.name)})"
        if isinstance(to, Named) and (to.name in ("void", "char") or given and to.name in IN_ARRAYS):
            return "c.c_void_p"
        return f"c.POINTER({self.of(to, given)})"

    def result(self, kind: Type) -> str:
        return "None" if kind == VOID else self.of(kind, False)

    def parameters(self, parameters: tuple[tuple[str, Type], ...], given: bool) -> list[str]:
        kinds = [kind for _, kind in parameters]
        return [self.of(kind, given, counts(kinds[i + 1:])) for i, kind in enumerate(kinds)]


def counts(following: list[Type]) -> bool:
    """Whether what follows an array or a text is its length."""
    return following[:1] == [Named("size_t")]


def constants(header: Header) -> str:
    loose = "".join(f"{comment(c.doc)}{c.name.split('_', 1)[1]} = {c.what}\n" for c in header.loose_constants)
    enums = "".join(f"\n\n{enum(e)}" for e in header.named_enums)
    return ('"""The constants of moe_c.h, without MOE_."""\n\nfrom __future__ import annotations\n\n'
            f"from ._enum import Enum\n\n{loose}{enums}")


def comment(text: str, indent: str = "") -> str:
    return "".join(f"{indent}# {line}\n" for line in wrapped(text, 96 - len(indent)))


def enum(e: Enum) -> str:
    members = "".join(f"{comment(c.doc, '    ')}    {name} = {c.what}\n" for name, c in e.names())
    return f'class {class_name(str(e.name))}(Enum):\n{docstring(str(e.name), e.doc)}\n{members}'


def docstring(name: str, text: str) -> str:
    lines = wrapped(f"{name}. {text}" if text else f"{name}.", 90)
    body = "\n    ".join(lines).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    end = '"""' if len(lines) == 1 and not body.endswith('"') else '\n    """'
    return f'    """{body}{end}\n'


def callbacks_in(struct: Struct) -> dict[str, FunctionPointer]:
    """Functions whose types have no name in C: the field's name with Fn."""
    return {camel(f.name.split("_")) + "Fn": f.what for f in struct.fields or ()
            if isinstance(f.what, FunctionPointer)}


def structs(header: Header) -> str:
    types, given, parts = Types(header), given_structs(header), []
    known: dict[str, FunctionPointer] = {}
    for name in ordered(header):
        if name in header.aliases:
            if isinstance(header.aliases[name].type, FunctionPointer):
                parts.append(f"{class_name(name)} = {types.of(header.aliases[name].type, True)}\n")
            continue
        for callback, kind in callbacks_in(header.structs[name]).items():
            if known.setdefault(callback, kind) != kind:
                raise ValueError(f"{name}: two functions of different types would both be {callback}")
            parts.append(f"{callback} = {types.of(kind, True)}\n")
        parts.append(structure(header.structs[name], types, name in given))
    return ('"""The structs and callbacks of moe_c.h, field by field."""\n\nfrom __future__ import annotations\n\n'
            "import ctypes as c\n\nfrom ._sized import Sized\n\n\n" + "\n\n".join(parts))


def structure(s: Struct, types: Types, given: bool) -> str:
    def of(i: int, field: Value) -> str:
        if isinstance(field.what, FunctionPointer):
            return camel(field.name.split("_")) + "Fn"
        return types.of(field.what, given, counts([f.what for f in s.fields[i + 1:]]))

    fields = ",\n        ".join(f'("{f.name}", {of(i, f)})' for i, f in enumerate(s.fields))
    base = "Sized" if s.sized else "c.Structure"
    return f"class {class_name(s.name)}({base}):\n{docstring(s.name, s.doc)}\n    _fields_ = [\n        {fields},\n    ]\n"


def ordered(header: Header) -> list[str]:
    """Structs with fields and callbacks, each behind those that it names."""
    all_names = {**{n: s for n, s in header.structs.items() if s.fields}, **header.aliases}
    done: dict[str, None] = {}

    def visit(name: str, behind: tuple[str, ...]) -> None:
        if name in done or name not in all_names:
            return
        if name in behind:
            raise ValueError(f"{name} refers to itself through {', '.join(behind)}, which ctypes cannot declare so")
        item = all_names[name]
        kinds = [f.what for f in item.fields] if isinstance(item, Struct) else [item.type]
        for other in [o for kind in kinds for o in all_names if o in references(kind)]:
            visit(other, (*behind, name))
        done[name] = None

    for name in all_names:
        visit(name, ())
    return list(done)


def functions(header: Header) -> str:
    types = Types(header, "s.")

    def entry(f: Function) -> str:
        arguments = types.parameters(f.parameters, True)
        line = f'    "{f.name}": ({types.result(f.result)}, [{", ".join(arguments)}]),\n'
        if len(line) > 101:
            inner = "".join(f"        {a},\n" for a in arguments)
            line = f'    "{f.name}": ({types.result(f.result)}, [\n{inner}    ]),\n'
        return line

    own = {"": "", "convert": "", "serve": ""}
    for f in header.functions.values():
        own["serve" if f.name.startswith(SERVE) else "convert" if f.name.startswith(CONVERT) else ""] += entry(f)
    return ('"""The functions of moe_c.h: the result, and the parameters. A handle and the address of an array whose type\n'
            'has been checked are c_void_p."""\n\nfrom __future__ import annotations\n\nimport ctypes as c\nfrom typing '
            "import Any\n\nfrom . import _structs as s\n\nPrototypes = dict[str, tuple[Any, list[Any]]]\n\n"
            f"# of libmoe\nMOE: Prototypes = {{\n{own['']}}}\n\n# of libmoe_convert\nMOE_CONVERT: Prototypes = "
            f"{{\n{own['convert']}}}\n\n# of libmoe_serve\nMOE_SERVE: Prototypes = {{\n{own['serve']}}}\n")
