# SPDX-License-Identifier: MIT
"""Saved sessions."""

from __future__ import annotations

import ctypes as c
import io
import os
from typing import Any

from . import _structs as s
from ._handle import Raised, path_bytes
from ._library import call, lib
from ._replacing import replacing
from ._session_calls import SessionCalls


class Saving(SessionCalls):
    """Part of Session."""

    def save(self, path: str | os.PathLike[str] | None = None) -> bytes | None:
        """The text with its keys and values, to go on later: as bytes, or in a file, which is
        replaced when the new one is complete and keeps its mode and owner. FileError if it cannot
        be written, or while another thread or program writes it; the old file is then unchanged."""
        if path is not None:
            with replacing(path) as file:
                self._save(file)
            return None
        buffer = io.BytesIO()
        self._save(buffer)
        return buffer.getvalue()

    def _save(self, file: Any) -> None:
        raised = Raised()

        def write(_user: Any, data: Any, n: int) -> bool:
            file.write(c.string_at(data, n))
            return True

        writer = s.Writer(write=s.WriteFn(raised.guard(write, False)))
        with self._pointer() as session:
            raised.call(call, lib.moe_session_save, session, c.byref(writer))

    def load(self, source: str | os.PathLike[str] | bytes) -> None:
        """Replaces the text by one of save(), given as bytes or as the path of a file. ArgumentError
        for one of another model or type of keys and values, TooLongError when the context is too
        small, FormatError, VersionError or CorruptError when it is damaged."""
        if isinstance(source, (str, os.PathLike)):
            with open(path_bytes(source, "source"), "rb") as file:
                self._load(file)
        else:
            self._load(io.BytesIO(source))

    def _load(self, file: Any) -> None:
        raised = Raised()

        def read(_user: Any, offset: int, to: Any, n: int) -> bool:
            file.seek(offset)
            return bool(file.readinto((c.c_char * n).from_address(to)) == n)

        size = file.seek(0, os.SEEK_END)
        reader = s.Reader(size=size, read=s.ReadFn(raised.guard(read, False)))
        with self._pointer() as session:
            raised.call(call, lib.moe_session_load, session, c.byref(reader))
