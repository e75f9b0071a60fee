# SPDX-License-Identifier: MIT
"""The enums as the users of a language know them, with their conversion from and to C: Rust's enums.rs, Go's
enums.go, Node's names.h and names.d.ts."""

from __future__ import annotations

from .direction import returned_enums
from .model import Enum, Header, Value
from .rust import doc
from .text import camel, wrapped

# The enum of the calls' results, whose constants begin with MOE_ or MOE_ERR_.
STATUS = "moe_status"


def errors(e: Enum) -> list[tuple[str, Value]]:
    """The constants with their names; of moe_status the failures alone."""
    if e.name != STATUS:
        return e.names()
    return [(name.removeprefix("ERR_"), c) for name, c in e.names() if name.startswith("ERR_")]


def distinct(members: list[tuple[str, Value]]) -> list[tuple[str, Value]]:
    """Without further names of the same value, for the way back from C."""
    values = [c.what for _, c in members]
    return [m for i, m in enumerate(members) if m[1].what not in values[:i]]


# ---- Rust

RUST_HEAD = """//! The enums of `moe_c.h`.
#![allow(dead_code)] // an enum of the header that no wrapper shows yet

use crate::sys;

"""


def rust(header: Header) -> str:
    returned = returned_enums(header)
    return RUST_HEAD + "\n".join(rust_enum(e, e.name in returned) for e in header.named_enums)


def rust_enum(e: Enum, returned: bool) -> str:
    kind = camel(e.name.split("_")[1:])
    members = [(camel(name.split("_")), c) for name, c in errors(e)]
    default = "" if returned or all(c.what for _, c in members) else "Default, "
    lines = ["#[non_exhaustive]\n"] if returned else []
    lines.append(f"pub enum {kind} {{\n")
    for name, c in members:
        lines.append(doc(c.doc, "    ") + ("    #[default]\n" if default and not c.what else "") + f"    {name},\n")
    if returned:
        lines.append("    /// A number that this crate does not know.\n    Other(i32),\n")
    to = [f"            {kind}::{name} => sys::{c.name},\n" for name, c in members]
    of = [f"            sys::{c.name} => {kind}::{name},\n" for name, c in distinct(members)]
    if returned:
        to.append(f"            {kind}::Other(code) => code,\n")
        of.append(f"            other => {kind}::Other(other),\n")
    body = (f"\nimpl {kind} {{\n    /// The number in `moe_c.h`.\n    pub fn code(self) -> i32 {{\n        match self {{\n"
            + "".join(to) + "        }\n    }\n")
    if returned:
        body += (f"\n    pub(crate) fn of(code: sys::{e.name}) -> {kind} {{\n        match code {{\n" + "".join(of)
                 + "        }\n    }\n")
    derived = f"#[derive(Clone, Copy, Debug, {default}PartialEq, Eq, Hash)]\n"
    return doc(e.doc or f"`{e.name}`.") + derived + "".join(lines) + "}\n" + body + "}\n"


# ---- Go

GO_WORDS = frozenset({"EOS", "ID", "IO", "KV", "OK"})


def go(header: Header) -> str:
    return ("package moe\n\n// #include <moe_c.h>\nimport \"C\"\n\nimport \"strconv\"\n\n"
            + "\n".join(go_enum(e) for e in header.named_enums))


def go_enum(e: Enum) -> str:
    kind = camel(e.name.split("_")[1:], GO_WORDS)
    status = ["STATUS"] if e.name == STATUS else []
    members = [(camel(status + [w for w in c.name.split("_")[1:] if not status or w != "ERR"], GO_WORDS), c)
               for c in e.constants]
    text = f"{kind} is {e.name} of the C API. {e.doc}".strip()
    lines = "".join(f"// {line}\n" for line in wrapped(text, 100)) + f"type {kind} int32\n\nconst (\n"
    for name, c in members:  # each behind a comment or an empty line, so that gofmt aligns nothing
        comment = "".join(f"\t// {line}\n" for line in wrapped(c.doc, 96)) or "\n"
        lines += f"{comment}\t{name} {kind} = C.{c.name}\n"
    return lines.replace("const (\n\n", "const (\n") + ")\n" + ("" if status else go_string(e, kind, members))


def go_string(e: Enum, kind: str, members: list[tuple[str, Value]]) -> str:
    names = dict((c.name, name.lower()) for name, c in e.names())
    cases = "".join(f'\tcase {name}:\n\t\treturn "{names[c.name]}"\n' for name, c in distinct(members))
    letter = kind[0].lower()
    return ("\n// String is the name in small letters, or the number if this package does not know it.\n"
            f"func ({letter} {kind}) String() string {{\n\tswitch {letter} {{\n{cases}\t}}\n"
            f"\treturn strconv.Itoa(int({letter}))\n}}\n")


# ---- Node

NODE_HEAD = """#pragma once
// The names of the constants of moe_c.h in JavaScript.

#include <moe_c.h>

namespace moe_node {

template <class Enum>
struct Name {
  const char* text;
  Enum value;
};

// clang-format off
"""


def node(header: Header) -> str:
    tables = []
    for e in header.named_enums:
        if e.name == STATUS:
            continue
        rows = "".join(f'  {{"{name.lower()}", {c.name}}},\n' for name, c in e.names())
        tables.append(f"inline constexpr Name<{e.name}> k{camel(e.name.split('_')[1:])}Names[] = {{\n{rows}}};\n")
    return NODE_HEAD + "".join(tables) + "// clang-format on\n\n}  // namespace moe_node\n"


def typescript(header: Header) -> str:
    lines = []
    for e in header.named_enums:
        status = e.name == STATUS
        kind = "ErrorCode" if status else camel(e.name.split("_")[1:])
        members = [c.name if status else name.lower() for name, c in (errors(e) if status else e.names())]
        text = "The `code` of this package's Errors. The message is one line that names the faulty item." if status else e.doc
        comment = "".join(f" * {line}\n" for line in wrapped(text, 96))
        head = f"/**\n{comment} */\n" if comment else ""
        lines.append(f"{head}export type {kind} =\n" + "\n".join(f"  | '{m}'" for m in members) + ";\n")
    return "\n".join(lines)
