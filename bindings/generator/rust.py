# SPDX-License-Identifier: MIT
"""bindings/rust/src/sys.rs: the C API name by name."""

from __future__ import annotations

from .layout import layouts
from .libraries import CONVERT, SERVE
from .model import Alias, Array, Enum, Function, FunctionPointer, Header, Named, Struct, Type, VOID

SCALARS = {"bool": "bool", "char": "c_char", "float": "f32", "double": "f64", "int": "c_int", "void": "c_void",
           "size_t": "usize", "ptrdiff_t": "isize", "intptr_t": "isize", "uintptr_t": "usize",
           **{f"{kind}{bits}_t": f"{letter}{bits}" for kind, letter in (("int", "i"), ("uint", "u"))
              for bits in (8, 16, 32, 64)}}
WIDTH = 100
KEYWORDS = {"as", "box", "const", "crate", "dyn", "else", "enum", "extern", "fn", "for", "if", "impl", "in", "let",
            "loop", "match", "mod", "move", "mut", "priv", "pub", "ref", "self", "static", "super", "trait", "type",
            "unsafe", "use", "where", "yield"}


def identifier(name: str) -> str:
    return f"r#{name}" if name in KEYWORDS else name


def rust_type(kind: Type) -> str:
    if isinstance(kind, Named):
        return SCALARS.get(kind.name, kind.name)
    if isinstance(kind, Array):
        return f"[{rust_type(kind.of)}; {kind.length}]"
    if isinstance(kind, FunctionPointer):
        parameters = ", ".join(rust_type(p) for _, p in kind.parameters)
        return f'Option<unsafe extern "C" fn({parameters}){result(kind.result)}>'
    if isinstance(kind.to, FunctionPointer):
        return f"*mut {rust_type(kind.to)}"
    return f"*{'const' if getattr(kind.to, 'const', False) else 'mut'} {rust_type(kind.to)}"


def result(kind: Type) -> str:
    return "" if kind == VOID else f" -> {rust_type(kind)}"


def doc(text: str, indent: str = "") -> str:
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in text.split("\n")) if text else ""


def constant(name: str, kind: str, value: int, text: str = "") -> str:
    return f"{doc(text)}pub const {name}: {kind} = {value};\n"


def loose_type(name: str, value: int) -> str:
    if value < 0:
        return "i32"
    return "usize" if name.endswith("_BYTES") else "u32" if value < 1 << 32 else "u64"


def enum(e: Enum) -> str:
    return (f"{doc(e.doc)}pub type {e.name} = c_int;\n"
            + "".join(constant(c.name, str(e.name), int(c.what), c.doc) for c in e.constants))


def alias(a: Alias) -> str:
    kind, line = rust_type(a.type), f"pub type {a.name} = {rust_type(a.type)};"
    return doc(a.doc) + (line if len(line) <= WIDTH else f"pub type {a.name} =\n    {kind};") + "\n"


def structure(s: Struct) -> str:
    if s.fields is None:
        return f"{doc(s.doc)}#[repr(C)]\npub struct {s.name} {{\n    _private: [u8; 0],\n}}\n"
    plain = all(isinstance(f.what, Named) and f.what.name in SCALARS for f in s.fields) and not s.sized
    fields = "".join(f"{doc(f.doc, '    ')}    pub {identifier(f.name)}: {rust_type(f.what)},\n" for f in s.fields)
    derived = "Clone, Copy, Debug, PartialEq" if plain else "Clone, Copy"
    return f"{doc(s.doc)}#[repr(C)]\n#[derive({derived})]\npub struct {s.name} {{\n{fields}}}\n"


def function(f: Function) -> str:
    parameters = [f"{identifier(name)}: {rust_type(kind)}" for name, kind in f.parameters]
    line = f"    pub fn {f.name}({', '.join(parameters)}){result(f.result)};"
    if len(line) > WIDTH:
        inner = "".join(f"        {p},\n" for p in parameters)
        line = f"    pub fn {f.name}(\n{inner}    ){result(f.result)};"
    return doc(f.doc, "    ") + line + "\n"


HEAD = """#![allow(non_camel_case_types, dead_code)]

use std::os::raw::{c_char, c_int, c_void};

"""


def sys(header: Header) -> str:
    functions = [f for f in header.functions.values() if not f.name.startswith(CONVERT + SERVE)]
    served = [f for f in header.functions.values() if f.name.startswith(SERVE)]
    parts = ["".join(constant(c.name, loose_type(c.name, int(c.what)), int(c.what), c.doc)
                     for c in header.loose_constants)]
    parts += [enum(e) for e in header.named_enums]
    parts += [alias(a) for a in header.aliases.values()]
    parts += [structure(s) for s in header.structs.values()]
    return (HEAD + "\n".join(parts) + '\nextern "C" {\n' + "".join(map(function, functions)) + "}\n"
            + '\n#[cfg(feature = "serve")]\nextern "C" {\n' + "".join(map(function, served)) + "}\n" + checks(header))


def checks(header: Header) -> str:
    """A test of the sizes and offsets that a C compiler sees."""
    lines = []
    for name, (size, fields) in layouts(header).items():
        offsets = "".join(f"        {identifier(f)}: {offset},\n" for f, offset in fields.items())
        lines.append(f"    layout!({name}, {size}, {{\n{offsets}    }});\n")
    return CHECK_HEAD + "".join(lines) + "}\n"


CHECK_HEAD = """
#[cfg(all(test, target_pointer_width = "64"))]
macro_rules! layout {
    ($name:ident, $size:literal, { $($field:ident: $offset:literal,)* }) => {
        assert_eq!(std::mem::size_of::<$name>(), $size, stringify!($name));
        let place = std::mem::MaybeUninit::<$name>::uninit();
        let base = place.as_ptr();
        // SAFETY: takes addresses and reads nothing.
        $(let at = unsafe { std::ptr::addr_of!((*base).$field) } as usize - base as usize;
        assert_eq!(at, $offset, concat!(stringify!($name), ".", stringify!($field)));)*
    };
}

/// Sizes and offsets as the C compiler has them on 64-bit machines.
#[cfg(all(test, target_pointer_width = "64"))]
#[test]
fn structs_are_those_of_c() {
"""
