# SPDX-License-Identifier: MIT
"""The base of the enums of moe_c.h."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeVar

E = TypeVar("E", bound="Enum")


class Enum(enum.IntEnum):
    """Also found by name, in small letters: KvType("int8") is KvType.INT8."""

    if TYPE_CHECKING:
        def __new__(cls: type[E], value: int | str) -> E: ...

    @classmethod
    def of(cls: type[E], value: object, argument: str) -> E:
        """The member of that value or name, which a caller gave as `argument`."""
        from .errors import ArgumentError  # which needs an enum

        names = {member.name.lower(): member for member in cls}
        if isinstance(value, str) and value in names:
            return names[value]
        if isinstance(value, int) and not isinstance(value, bool) and value in list(cls):
            return cls(value)
        raise ArgumentError(f"{argument}: expected one of {', '.join(names)}, found {value!r}")

    @classmethod
    def _missing_(cls: type[E], value: object) -> E:
        return cls.of(value, cls.__name__)
