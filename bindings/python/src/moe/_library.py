# SPDX-License-Identifier: MIT
"""Finds libmoe, libmoe_convert and libmoe_serve, declares their functions and calls them."""

from __future__ import annotations

import ctypes as c
import functools
import os
import pathlib
from typing import Any

from . import _structs as s
from ._constants import VERSION_MAJOR, VERSION_MINOR
from ._functions import MOE, MOE_CONVERT, MOE_SERVE, Prototypes
from .errors import error_of

ABI_VERSION = (VERSION_MAJOR, VERSION_MINOR)  # while the major version is 0, a minor one may change the ABI
_SONAME = ".".join(map(str, ABI_VERSION[: 1 if ABI_VERSION[0] else 2]))


def _candidates(name: str) -> list[str]:
    """Where the library of that name may be. MOE_LIBRARY is the path of libmoe (or of its folder)
    and the only place looked at when it is set; the others lie beside it."""
    given = os.environ.get("MOE_LIBRARY")
    file = f"lib{name}.so"
    if given:
        path = pathlib.Path(given)
        folder = path if path.is_dir() else path.parent
        if name == "moe" and not path.is_dir():
            return [str(path)]
        return [str(folder / file), str(folder / f"{file}.{_SONAME}")]
    versioned = f"{file}.{_SONAME}"
    return [str(pathlib.Path(__file__).parent / versioned), versioned]


def _load(name: str, prototypes: Prototypes) -> c.CDLL:
    tried = []
    for path in _candidates(name):
        try:
            library = c.CDLL(path)
        except OSError as e:
            tried.append(f"{path}: {e}")
            continue
        try:
            for function, (result, arguments) in prototypes.items():
                f = getattr(library, function)
                f.restype, f.argtypes = result, arguments
        except AttributeError as e:
            raise ImportError(f"{path} is not version {ABI_VERSION} of lib{name}: {e}") from None
        return library
    raise ImportError(f"lib{name} was not found; set MOE_LIBRARY to its path. Tried:\n  "
                      + "\n  ".join(tried))


def _load_moe() -> c.CDLL:
    library = _load("moe", MOE)
    version = library.moe_version()
    found = (version // 1000000, version // 1000 % 1000)
    if found != ABI_VERSION:
        raise ImportError(f"libmoe: expected version {ABI_VERSION[0]}.{ABI_VERSION[1]}, "
                          f"found {found[0]}.{found[1]}")
    return library


lib = _load_moe()


@functools.cache
def convert_library() -> c.CDLL:
    """libmoe_convert, loaded on first use."""
    return _load("moe_convert", MOE_CONVERT)


@functools.cache
def serve_library() -> c.CDLL:
    """libmoe_serve, loaded on first use."""
    return _load("moe_serve", MOE_SERVE)


def call(function: Any, *arguments: Any) -> None:
    """Calls a function that returns a status and takes moe_error* last; raises what it reports."""
    error = s.Error()
    status = function(*arguments, c.byref(error))
    if status:
        raise error_of(status, error.text.decode("utf-8", "replace"))


def names_of(list_: Any) -> tuple[str, ...]:
    """The names that a function of the library lists by index."""
    names: list[str] = []
    while (name := list_(len(names))) is not None:
        names.append(text_of(name))
    return tuple(names)


def text_of(value: Any) -> str:
    """A string of the library."""
    return bytes(value or b"").decode("utf-8", "replace")
