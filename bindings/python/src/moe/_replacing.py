# SPDX-License-Identifier: MIT
"""Files that are replaced when their new content is complete."""

from __future__ import annotations

import contextlib
import ctypes as c
import os
import pathlib
from typing import BinaryIO
from collections.abc import Iterator

from ._handle import path_bytes
from ._library import call, lib

_BUFFER = 1 << 20


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write the new content of `path` to, which gets that name at the end of the `with`
    statement; after an exception the old file is unchanged. FileError if it cannot be written, or
    while another program that uses libmoe writes it."""
    handle = c.c_void_p()
    call(lib.moe_replacement_open, path_bytes(path, "path"), c.byref(handle))
    try:
        descriptor = c.c_int()
        call(lib.moe_replacement_begin, handle, c.byref(descriptor))
        with open(descriptor.value, "wb", _BUFFER, closefd=False) as file:
            yield file
        call(lib.moe_replacement_commit, handle)
    finally:
        lib.moe_replacement_free(handle)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replaces a file by a text in UTF-8. A device or a pipe is written directly."""
    place = pathlib.Path(path)
    if place.exists() and not place.is_file():
        place.write_text(text, encoding="utf-8")
        return
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
