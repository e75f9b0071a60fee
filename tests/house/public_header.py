# SPDX-License-Identifier: MIT
"""The declarations of include/moe_c.h, for tests that compare the bindings with them."""

import re
from typing import NamedTuple


class Function(NamedTuple):
    result: str
    parameters: list  # their types


class Header(NamedTuple):
    functions: dict  # name: Function
    structs: dict    # name: [(field, type)]
    callbacks: dict  # name: Function
    opaque: set
    enums: dict      # name ("" for anonymous enums): {constant: value}
    macros: dict     # those that are numbers


def spaced(text):
    return re.sub(r"\s*\*\s*", "* ", re.sub(r"\s+", " ", text)).replace("* *", "**").strip()


def named(declaration):
    """("capacity", "size_t") of "size_t capacity"; an array's length is part of its type."""
    found = re.fullmatch(r"(.*?)(\w+)((?:\[\w+\])?)", spaced(declaration))
    return found[2], found[1].strip() + found[3]


def parameters(text):
    return [] if text.strip() in ("", "void") else [named(p)[1] for p in text.split(",")]


def pointer_type(result, arguments):
    """The canonical text of a function pointer's type."""
    return f"{spaced(result)}(*)({', '.join(parameters(arguments))})"


def fields(body):
    found = []
    for declaration in filter(None, (d.strip() for d in body.split(";"))):
        pointer = re.fullmatch(r"(.*?)\(\*(\w+)\)\((.*)\)", declaration, re.S)
        found.append((pointer[2], pointer_type(pointer[1], pointer[3])) if pointer
                     else named(declaration))
    return found


def constants(body):
    return {name: int(value) for name, value in re.findall(r"(\w+)\s*=\s*(\d+)", body)}


def read(path):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    functions = {name: Function(spaced(result), parameters(arguments)) for result, name, arguments
                 in re.findall(r"MOE_API ([\w\s*]+?)\b(moe_\w+)\(([^)]*)\);", text)}
    assert len(functions) == text.count("MOE_API ") - 1, "a function was not understood"
    structs = {name: fields(body) for name, body
               in re.findall(r"struct (moe_\w+) \{(.*?)\n\}", text, re.S)}
    assert len(structs) == len(re.findall(r"struct \w+ \{", text)), "a struct was not understood"
    callbacks = {name: Function(spaced(result), parameters(arguments)) for result, name, arguments
                 in re.findall(r"typedef ([\w\s*]+?)\(\*(\w+)\)\(([^)]*)\);", text)}
    enums = {name: constants(body) for name, body
             in re.findall(r"typedef enum (\w+) \{(.*?)\}", text, re.S)}
    enums[""] = constants(";".join(re.findall(r"\benum \{(.*?)\}", text, re.S)))
    return Header(functions, structs, callbacks,
                  set(re.findall(r"typedef struct (\w+) \1;", text)) - set(structs), enums,
                  {name: int(value) for name, value
                   in re.findall(r"#define (MOE_\w+) (\d+)$", text, re.M)})
