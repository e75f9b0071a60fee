# SPDX-License-Identifier: MIT
"""The ctypes declarations against include/moe_c.h, as a C compiler sees it."""

import ctypes as c
import json
import os
import pathlib
import re
import subprocess

import pytest
from conftest import ROOT
from moe import _library, _structs, errors

HEADER = ROOT / "include/moe_c.h"
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
ENUMS = {"moe_status": ("MOE_", errors.Status), "moe_log_level": ("MOE_LOG_", _structs.LogLevel),
         "moe_io": ("MOE_IO_", _structs.Io), "moe_kv_type": ("MOE_KV_", _structs.KvType),
         "moe_thinking": ("MOE_THINKING_", _structs.Thinking),
         "moe_pooling": ("MOE_POOL_", _structs.Pooling),
         "moe_normalize": ("MOE_NORMALIZE_", _structs.Normalize),
         "moe_beam_stop": ("MOE_BEAM_STOP_", _structs.BeamStop),
         "moe_finish": ("MOE_FINISH_", _structs.Finish)}
CONSTANTS = {"MOE_PIECE_THINKING": _structs.PIECE_THINKING,
             "MOE_ENCODE_NO_SPECIAL": _structs.ENCODE_NO_SPECIAL,
             "MOE_ENCODE_PARSE_SPECIAL": _structs.ENCODE_PARSE_SPECIAL,
             "MOE_DECODE_SKIP_SPECIAL": _structs.DECODE_SKIP_SPECIAL,
             "MOE_ERROR_TEXT_BYTES": _structs.ERROR_TEXT_BYTES,
             "MOE_VERSION_MAJOR": _library.ABI_VERSION[0],
             "MOE_VERSION_MINOR": _library.ABI_VERSION[1]}


def struct_bodies():
    return dict(re.findall(r"struct (moe_\w+) \{(.*?)\n\}", TEXT, re.S))


def python_struct(name):
    return getattr(_structs, "".join(word.title() for word in name[4:].split("_")))


def field_names(body):
    names = re.findall(r"\(\*(\w+)\)\(", body)  # function pointers
    rest = re.sub(r"[^;]*\(\*\w+\)\([^;]*;", "", body)
    return names, re.findall(r"(\w+)(?:\[\w+\])?\s*;", rest)


@pytest.fixture(scope="module")
def seen_by_c(tmp_path_factory):
    """Sizes, offsets and values, printed by a compiled C program."""
    lines = []
    for name, body in struct_bodies().items():
        lines.append(f'printf("\\"{name}\\": %zu,\\n", sizeof({name}));')
        for field in sum(field_names(body), []):
            lines.append(f'printf("\\"{name}.{field}\\": [%zu, %zu],\\n", '
                         f"offsetof({name}, {field}), sizeof((({name}*)0)->{field}));")
    for constant in set(re.findall(r"\b(MOE_[A-Z0-9_]+) = \d+", TEXT)) | set(CONSTANTS):
        lines.append(f'printf("\\"{constant}\\": %d,\\n", (int){constant});')
    folder = tmp_path_factory.mktemp("header")
    source = folder / "sizes.c"
    source.write_text('#include <stdio.h>\n#include "moe_c.h"\nint main(void) {\nputs("{");\n'
                      + "\n".join(lines) + '\nputs("\\"end\\": 0}");\nreturn 0;\n}\n')
    subprocess.run([os.environ.get("CC", "cc"), "-std=c99", f"-I{HEADER.parent}", str(source),
                    "-o", str(folder / "sizes")], check=True)
    done = subprocess.run([str(folder / "sizes")], check=True, capture_output=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", sorted(struct_bodies()))
def test_struct(name, seen_by_c):
    struct = python_struct(name)
    assert c.sizeof(struct) == seen_by_c[name]
    in_header = {key.split(".")[1]: value for key, value in seen_by_c.items()
                 if key.startswith(name + ".")}
    in_python = {field: [getattr(struct, field).offset, getattr(struct, field).size]
                 for field, _ in struct._fields_}
    assert in_python == in_header
    assert issubclass(struct, _structs.Sized) == ("struct_size" in in_header)


def test_every_struct_is_there():
    assert len(struct_bodies()) == TEXT.count("struct_size;") + 12


@pytest.mark.parametrize("name", sorted(ENUMS))
def test_enum(name, seen_by_c):
    prefix, enum = ENUMS[name]
    body = re.search(rf"typedef enum {name} \{{(.*?)\}}", TEXT, re.S)[1]
    in_header = {n: seen_by_c[n] for n in re.findall(r"(MOE_\w+) =", body)}
    assert {prefix + member.name: member.value for member in enum} == in_header


def test_no_enum_is_missing():
    assert set(re.findall(r"typedef enum (\w+)", TEXT)) == set(ENUMS)


def test_constants(seen_by_c):
    assert {name: seen_by_c[name] for name in CONSTANTS} == CONSTANTS


SCALARS = {"size_t": c.c_size_t, "int32_t": c.c_int32, "uint32_t": c.c_uint32, "bool": c.c_bool,
           "moe_status": c.c_int, "void": None, "moe_progress_fn": _structs.ProgressFn,
           "moe_routing_fn": _structs.RoutingFn}


def functions():
    return {name: (result.strip(), [p.strip() for p in parameters.split(",")])
            for result, name, parameters in
            re.findall(r"MOE_API ([\w\s*]+?)\b(moe_\w+)\(([^)]*)\);", TEXT)}


def fits(declared, python):
    """Whether the ctypes type fits the declaration: c_void_p fits any pointer, a typed one only that of the header."""
    declared = re.sub(r"\bconst\b|\bstruct\b", "", declared).strip()
    if "*" not in declared:
        kind = declared.split()[0]
        return python is SCALARS[kind]
    if python in (c.c_void_p, c.c_char_p):
        return python is c.c_void_p or declared.startswith("char")
    target = python._type_
    kind = declared.split("*")[0].strip()
    if declared.count("*") == 2:
        return target is (c.c_char_p if kind == "char" else c.c_void_p)
    numbers = {"size_t": c.c_size_t, "uint64_t": c.c_uint64, "int": c.c_int, "bool": c.c_bool}
    return target is numbers[kind] if kind in numbers else target is python_struct(kind)


UNUSED = {
    "moe_status_name": "MoeError.name has it of the enum",
    "moe_synthetic_create": "save_synthetic() makes the same file",
    "moe_synthetic_free": "of moe_synthetic_create alone",
}


def test_every_function_is_declared_and_used():
    declared = set(_library.MOE) | set(_library.MOE_CONVERT)
    sources = pathlib.Path(_library.__file__).parent.glob("**/*.py")
    used = set(re.findall(r"(?:lib|library|library\(\))\.(moe_\w+)", "\n".join(p.read_text() for p in sources)))
    assert used == declared
    assert set(functions()) == declared | set(UNUSED) and not declared & set(UNUSED)
    assert len(functions()) == TEXT.count("MOE_API ") - 1  # one is a definition of the macro


@pytest.mark.parametrize("name", sorted(set(functions()) - set(UNUSED)))
def test_function(name):
    result, parameters = functions()[name]
    python_result, arguments = {**_library.MOE, **_library.MOE_CONVERT}[name]
    assert fits(result, python_result)
    parameters = [] if parameters == ["void"] else parameters
    assert len(arguments) == len(parameters)
    for parameter, argument in zip(parameters, arguments):
        assert fits(parameter, argument), (parameter, argument)
