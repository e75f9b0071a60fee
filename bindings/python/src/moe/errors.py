# SPDX-License-Identifier: MIT
"""Exceptions: one class for each status of the library."""

from __future__ import annotations

from ._constants import Status


class MoeError(Exception):
    """A call that failed. `status` is the code, `name` its spelling in moe_c.h ("MOE_ERR_RANGE"),
    `text` the library's one line on what is at fault."""

    status: Status = Status.ERR_INTERNAL

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def name(self) -> str:
        return f"MOE_{self.status.name}"

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class ArgumentError(MoeError, ValueError):
    status = Status.ERR_ARGUMENT


class RangeError(MoeError, ValueError):
    status = Status.ERR_RANGE


class ShapeError(MoeError, ValueError):
    status = Status.ERR_SHAPE


class NonFiniteError(MoeError, ValueError):
    status = Status.ERR_NON_FINITE


class StateError(MoeError):
    """The call is not allowed now: the object is closed, in use by another thread, or empty."""

    status = Status.ERR_STATE


class TooLongError(MoeError):
    status = Status.ERR_TOO_LONG


class UnsupportedError(MoeError):
    status = Status.ERR_UNSUPPORTED


class FileError(MoeError, OSError):
    """Opening, reading, writing or renaming failed; the text names errno."""

    status = Status.ERR_IO


class NotFoundError(MoeError, FileNotFoundError):
    """A file, or something in one: a tensor, a token, a template."""

    status = Status.ERR_NOT_FOUND


class FormatError(MoeError):
    status = Status.ERR_FORMAT


class VersionError(MoeError):
    status = Status.ERR_VERSION


class CorruptError(MoeError):
    status = Status.ERR_CORRUPT


class TextError(MoeError):
    status = Status.ERR_TEXT


class OutOfMemoryError(MoeError, MemoryError):
    status = Status.ERR_MEMORY


class BudgetError(MoeError, MemoryError):
    """The memory cap is too small; the text itemises what is needed."""

    status = Status.ERR_BUDGET


class DeviceError(MoeError):
    status = Status.ERR_DEVICE


class CancelledError(MoeError):
    status = Status.ERR_CANCELLED


class InternalError(MoeError):
    """A fault of the library; please report it."""

    status = Status.ERR_INTERNAL


_BY_STATUS: dict[int, type[MoeError]] = {
    cls.status: cls
    for cls in (ArgumentError, RangeError, ShapeError, NonFiniteError, StateError, TooLongError,
                UnsupportedError, FileError, NotFoundError, FormatError, VersionError,
                CorruptError, TextError, OutOfMemoryError, BudgetError, DeviceError,
                CancelledError, InternalError)
}


def error_of(status: int, text: str) -> MoeError:
    """The exception for a status; one that this package does not know is an InternalError."""
    cls = _BY_STATUS.get(status)
    return cls(text) if cls else InternalError(f"status {status}: {text}")
