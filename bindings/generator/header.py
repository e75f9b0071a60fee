# SPDX-License-Identifier: MIT
"""Reads a C header with the compiler's preprocessor and pycparser."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from typing import Any, Optional

try:
    import pycparser
except ImportError:  # a python3 that is not Debian's, where the package is
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import pycparser
    except ImportError:
        sys.exit("the Python package pycparser is missing (Debian: python3-pycparser)")
from pycparser import c_ast

from .comments import Comments
from .model import Alias, Array, Enum, Function, FunctionPointer, Header, Named, Pointer, Struct, Type, Value, references

# The types of the standard headers, which the parser shall know by name alone.
STANDARD = {"bool": "_Bool", "size_t": "unsigned long", "ptrdiff_t": "long", "intptr_t": "long",
            "uintptr_t": "unsigned long",
            **{f"{sign}int{bits}_t": f"{'unsigned' if sign else 'signed'} {kind}" for sign in ("", "u")
               for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))}}
BUILTIN = {"void", "char", "int", "float", "double"}


class Unknown(Exception):
    """A declaration that this program does not understand. Its text begins with the file and line."""


def fail(node: Any, what: str) -> Any:
    where = getattr(node, "coord", None)
    raise Unknown(f"{where.file}:{where.line}: {what}" if where else what)


def run_compiler(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The C compiler of $CC, or cc."""
    command = [*shlex.split(os.environ.get("CC", "cc")), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as e:
        raise Unknown(f"{command[0]}: {e.strerror}; CC names a C compiler") from None


def preprocessed(path: pathlib.Path, text: str) -> str:
    """The header for a C compiler, with empty standard headers and without attributes."""
    with tempfile.TemporaryDirectory() as folder:
        for name in re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.M):
            file = pathlib.Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        prelude = pathlib.Path(folder, "prelude")
        prelude.write_text("".join(f"typedef {kind} {name};\n" for name, kind in STANDARD.items()), encoding="utf-8")
        done = run_compiler(["-E", "-x", "c", "-std=c99", "-nostdinc", "-I", folder, "-include", str(prelude),
                             "-D__attribute__(x)=", "-D__declspec(x)=", str(path)])
    if done.returncode:
        raise Unknown(done.stderr.strip())
    return done.stdout


def number(node: Any, known: dict[str, int]) -> int:
    """The value of a constant expression."""
    if isinstance(node, c_ast.Constant) and "int" in node.type:
        return int(node.value.rstrip("uUlL"), 0)
    if isinstance(node, c_ast.ID) and node.name in known:
        return known[node.name]
    if isinstance(node, c_ast.UnaryOp) and node.op in ("-", "~", "+"):
        value = number(node.expr, known)
        return {"-": -value, "~": ~value, "+": value}[node.op]
    if isinstance(node, c_ast.BinaryOp) and node.op in ("+", "-", "*", "<<", "|"):
        left, right = number(node.left, known), number(node.right, known)
        return {"+": left + right, "-": left - right, "*": left * right, "<<": left << right if node.op == "<<" else 0,
                "|": left | right}[node.op]
    return fail(node, "a constant that is not a whole number")


class Reader:
    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.text = str(path), path.read_text(encoding="utf-8")
        self.comments, self.header = Comments(self.text), Header()
        self.numbers: dict[str, int] = {}
        self.types = BUILTIN | set(STANDARD)

    def read(self) -> Header:
        try:
            tree = pycparser.CParser().parse(preprocessed(pathlib.Path(self.path), self.text), self.path)
        except Exception as e:  # ParseError is in another module of each version of pycparser
            if type(e).__name__ != "ParseError":
                raise
            raise Unknown(str(e)) from None
        for node in tree.ext:
            if node.coord is None or node.coord.file == self.path:
                self.declaration(node)
        self.macros()
        self.check()
        return self.header

    def doc(self, name: Optional[str], node: Any, ends: str = ";{}") -> str:
        return self.comments.of(name, node.coord.line, ends) if name else ""

    def declaration(self, node: Any) -> None:
        if isinstance(node, c_ast.Typedef):
            self.typedef(node)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            result, parameters = self.signature(node.type)
            self.header.functions[node.name] = Function(node.name, result, parameters, self.doc(node.name, node))
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Struct) and node.name is None:
            self.struct(node.type)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum) and node.name is None:
            self.enum(node.type.name, node.type)
        elif not isinstance(node, (c_ast.Pragma, c_ast.StaticAssert)):
            fail(node, f"not a typedef, struct, enum or function declaration ({type(node).__name__})")

    def typedef(self, node: Any) -> None:
        inner = node.type.type if isinstance(node.type, c_ast.TypeDecl) else None
        self.types.add(node.name)
        if isinstance(inner, c_ast.Enum):
            self.enum(node.name, inner)
        elif isinstance(inner, c_ast.Struct):
            if inner.name != node.name:
                fail(node, f"the struct and its typedef {node.name} must have the same name")
            self.struct(inner)
        else:
            self.header.aliases[node.name] = Alias(node.name, self.type(node.type), self.doc(node.name, node))

    def enum(self, name: Optional[str], node: Any) -> None:
        if node.values is None:
            fail(node, "an enum without constants")
        constants, last = [], -1
        for item in node.values.enumerators:
            last = number(item.value, self.numbers) if item.value else last + 1
            self.numbers[item.name] = last
            constants.append(Value(item.name, last, self.doc(item.name, item, ",{}")))
        self.header.enums.append(Enum(name, tuple(constants), self.doc(name, node)))

    def struct(self, node: Any) -> None:
        known = self.header.structs.get(node.name)
        if node.decls is None:
            self.header.structs.setdefault(node.name, Struct(node.name, None, self.doc(node.name, node)))
            return
        for field in node.decls:
            if not isinstance(field, c_ast.Decl) or field.name is None or field.bitsize is not None:
                fail(field if field.coord else node, "a field without a name, or a bit field")
        fields = tuple(Value(f.name, self.type(f.type), self.doc(f.name, f)) for f in node.decls)
        doc = self.doc(node.name, node) or (known.doc if known else "")
        self.header.structs.pop(node.name, None)  # from here on it is complete
        self.header.structs[node.name] = Struct(node.name, fields, doc)

    def signature(self, node: Any) -> tuple[Type, tuple[tuple[str, Type], ...]]:
        if node.args is None:
            fail(node, "a function without a list of parameters; (void) is an empty one")
        parameters = []
        for p in node.args.params:
            if isinstance(p, c_ast.EllipsisParam):
                fail(p, "a function with a variable number of parameters")
            kind = self.type(p.type)
            if kind != Named("void"):
                parameters.append((p.name or fail(node, "a parameter without a name"), kind))
        return self.type(node.type), tuple(parameters)

    def type(self, node: Any) -> Type:
        if isinstance(node, c_ast.TypeDecl):
            return self.named(node)
        if isinstance(node, c_ast.PtrDecl):
            if isinstance(node.type, c_ast.FuncDecl):
                return FunctionPointer(*self.signature(node.type))
            return Pointer(self.type(node.type), "const" in node.quals)
        if isinstance(node, c_ast.ArrayDecl) and node.dim is not None:
            return Array(self.type(node.type), number(node.dim, self.numbers))
        return fail(node, f"a type that is not understood ({type(node).__name__})")

    def named(self, node: Any) -> Type:
        inner, const = node.type, "const" in node.quals
        if isinstance(inner, (c_ast.Struct, c_ast.Enum)):
            if not inner.name or getattr(inner, "decls", None) or getattr(inner, "values", None):
                fail(node, "a struct or enum inside another declaration")
            return Named(inner.name, const)
        name = " ".join(inner.names) if isinstance(inner, c_ast.IdentifierType) else type(inner).__name__
        if name not in self.types:
            fail(node, f"the type {name} is not understood")
        return Named(name, const)

    def macros(self) -> None:
        """Macros without parameters that are numbers. Those of the compiler (MOE_API) are none."""
        pattern = r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?![\w(])[ \t]*(.*)$"
        for found in re.finditer(pattern, re.sub(r"\\\n", "  ", self.text), re.M):
            name, value = found[1], re.sub(r"/\*.*?(\*/|$)|//.*", "", found[2]).strip()
            if not value or value.startswith(("__", "extern", "[[", '"')):
                continue
            line = self.text.count("\n", 0, found.start()) + 1
            try:
                tree = pycparser.CParser().parse(f"enum {{ value = {value} }};", self.path)
                result = number(tree.ext[0].type.values.enumerators[0].value, self.numbers)
            except Exception:
                raise Unknown(f"{self.path}:{line}: {name}: expected a number, found {value}") from None
            self.numbers[name] = result
            self.header.macros.append(Value(name, result))

    def check(self) -> None:
        """Every name of a type is declared, and a struct inside another one with its fields."""
        header = self.header
        known = self.types | set(header.structs) | {e.name for e in header.named_enums}
        for name, kind in header.uses():
            unknown = sorted(references(kind) - known)
            if unknown:
                raise Unknown(f"{self.path}: {name}: {unknown[0]} is not declared")
        complete = {name for name, struct in header.structs.items() if struct.fields is not None}
        for struct in header.structs.values():
            for field in struct.fields or ():
                for inner in references(field.what, through_pointers=False) & (set(header.structs) - complete):
                    raise Unknown(f"{self.path}: {struct.name}.{field.name}: the fields of {inner} are not declared")


def read(path: pathlib.Path) -> Header:
    """The declarations of a header. Unknown, with its line, for what is not understood."""
    return Reader(pathlib.Path(path)).read()
