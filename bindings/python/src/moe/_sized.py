# SPDX-License-Identifier: MIT
"""The base of the structs of moe_c.h that carry their size."""

from __future__ import annotations

import ctypes as c
import operator
from typing import Any

from .errors import RangeError

_INTEGERS = (c.c_int, c.c_size_t, c.c_ssize_t, c.c_int8, c.c_uint8, c.c_int16, c.c_uint16, c.c_int32, c.c_uint32,
             c.c_int64, c.c_uint64)


def integer(value: Any, name: str, kind: Any) -> int:
    """An argument of an integer type of C; ctypes cuts off what does not fit."""
    number = operator.index(value)
    if kind(number).value != number:
        raise RangeError(f"{name}: {number} does not fit in {'' if kind(-1).value < 0 else 'unsigned '}"
                         f"{8 * c.sizeof(kind)} bits")
    return number


class Sized(c.Structure):
    """A struct whose first field is its own size, set when it is made, as are those of the structs in it."""

    def __init__(self, **fields: object) -> None:
        super().__init__(struct_size=c.sizeof(self))
        kinds = {field[0]: field[1] for field in self._fields_}
        for name, kind in kinds.items():
            if issubclass(kind, Sized) and name not in fields:
                getattr(self, name).__init__()
        for name, value in fields.items():
            setattr(self, name, integer(value, name, kinds[name]) if kinds[name] in _INTEGERS else value)
