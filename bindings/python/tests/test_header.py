# SPDX-License-Identifier: MIT
"""The ctypes declarations against include/moe_c.h, as a C compiler sees it."""

import ctypes as c
import sys

import pytest
from conftest import ROOT
from moe import _constants, _functions, _structs, errors

sys.path.insert(0, str(ROOT / "bindings"))
from generator import header, probe, python  # noqa: E402

PATH = ROOT / "include/moe_c.h"
HEADER = header.read(PATH)


@pytest.fixture(scope="module")
def seen_by_c():
    return probe.seen_by_c(PATH, HEADER)


@pytest.mark.parametrize("name", sorted(name for name, s in HEADER.structs.items() if s.fields))
def test_struct(name, seen_by_c):
    struct = getattr(_structs, python.class_name(name))
    assert c.sizeof(struct) == seen_by_c[name]
    in_header = {key.split(".")[1]: value for key, value in seen_by_c.items() if key.startswith(name + ".")}
    in_python = {field: [getattr(struct, field).offset, getattr(struct, field).size] for field, _ in struct._fields_}
    assert in_python == in_header
    assert issubclass(struct, _structs.Sized) == ("struct_size" in in_header)


@pytest.mark.parametrize("enum", HEADER.named_enums, ids=lambda e: e.name)
def test_enum(enum, seen_by_c):
    members = getattr(_constants, python.class_name(enum.name))
    assert {enum.prefix + m.name: m.value for m in members} == {v.name: seen_by_c[v.name] for v in enum.constants}


def test_every_failure_has_its_exception():
    assert set(errors._BY_STATUS) == set(_constants.Status) - {_constants.Status.OK}


def test_constants(seen_by_c):
    for constant in HEADER.loose_constants:
        assert getattr(_constants, constant.name.removeprefix("MOE_")) == seen_by_c[constant.name]


def test_every_function_is_declared():
    assert set(_functions.MOE) | set(_functions.MOE_CONVERT) | set(_functions.MOE_SERVE) == set(HEADER.functions)


def test_a_struct_in_a_struct_has_its_size():
    class Outer(_structs.Sized):
        _fields_ = [("struct_size", c.c_uint32), ("inner", _structs.EnvInfo), ("given", _structs.EnvInfo)]

    outer = Outer(given=_structs.EnvInfo(threads=3))
    assert outer.struct_size == c.sizeof(Outer)
    assert outer.inner.struct_size == outer.given.struct_size == c.sizeof(_structs.EnvInfo)
    assert (outer.inner.threads, outer.given.threads) == (0, 3)
