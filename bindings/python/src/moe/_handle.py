# SPDX-License-Identifier: MIT
"""Ownership of what the library allocates, and exceptions in callbacks."""

from __future__ import annotations

import contextlib
import ctypes as c
import os
import threading
from typing import Any, TypeVar
from collections.abc import Callable, Iterator

from .errors import ArgumentError, StateError

_Self = TypeVar("_Self", bound="Closable")


class Uncopyable:
    """Base of objects that own something of the library, which a copy would free a second time. `copy` and
    `pickle` both ask __reduce_ex__."""

    _what = "object"

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError(f"a {self._what} cannot be copied or pickled: it stands for memory of "
                        "libmoe; make another one instead")


class Native(Uncopyable):
    """A pointer of the library that is counted: by its Python object, by each child, and by each
    call in progress. It is freed when nobody holds it any more, and only then releases its
    parent, so that children always go first, in whatever order objects are closed or collected."""

    def __init__(self, pointer: int, free: Callable[[int], None], parent: Native | None = None,
                 keep: Any = None) -> None:
        self.pointer = pointer
        self._free = free
        self._parent = parent
        self._keep = keep  # memory and callbacks that the library refers to
        self._holders = 1
        self._lock = threading.RLock()  # a garbage collection may come back to it
        if parent is not None:
            parent.hold()

    def hold(self) -> None:
        with self._lock:
            if self._holders == 0:
                raise StateError("the object is closed")
            self._holders += 1

    def adopt(self, parent: Native) -> None:
        """Takes another parent in place of the present one."""
        parent.hold()
        old, self._parent = self._parent, parent
        if old is not None:
            old.release()

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
        self._free(self.pointer)
        self._keep = None
        if self._parent is not None:
            self._parent.release()


class Closable(Uncopyable):
    """An object over a Native. Use it in a `with` statement, call close(), or let it be collected.
    After close() every method raises StateError; a call in progress ends undisturbed."""

    _native: Native | None = None

    def __repr__(self) -> str:
        """Describes the object; must never raise, since logs use it."""
        try:
            told = "closed" if self.closed else self._describe()
        except Exception as e:  # closed by another thread just now
            told = str(e)
        return f"<moe.{type(self).__name__} {told}>" if told else f"<moe.{type(self).__name__}>"

    def _describe(self) -> str:
        """For __repr__, of an open object."""
        return ""

    @property
    def closed(self) -> bool:
        return self._native is None

    def close(self) -> None:
        """Frees the memory once everything created from this object is closed too. Any number
        of times, from any thread."""
        native, self._native = self._native, None
        if native is not None:
            native.release()

    def _open(self) -> Native:
        native = self._native
        if native is None:
            raise StateError(f"the {self._what} is closed")
        return native

    @contextlib.contextmanager
    def _pointer(self) -> Iterator[int]:
        """The pointer for one call, during which it stays valid."""
        native = self._open()
        native.hold()
        try:
            yield native.pointer
        finally:
            native.release()

    def __enter__(self: _Self) -> _Self:
        self._open()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Raised:
    """Stores the first exception of callbacks, which cannot pass through C, until the call ends."""

    def __init__(self) -> None:
        self.exception: BaseException | None = None
        self.thread = 0  # that it was raised in

    def guard(self, function: Callable[..., Any], failed: Any = None) -> Callable[..., Any]:
        """`function`, which returns `failed` once anything was raised."""

        def guarded(*arguments: Any) -> Any:
            if self.exception is not None:
                return failed
            try:
                return function(*arguments)
            except BaseException as e:  # KeyboardInterrupt too
                self.thread = threading.get_ident()
                self.exception = e
                return failed

        return guarded

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """`function(*arguments)`; a callback's exception takes precedence over its error."""
        try:
            function(*arguments)
        except Exception:
            if self.exception is None:
                raise
        if self.exception is not None:
            exception, self.exception = self.exception, None
            try:
                raise exception
            finally:
                del exception  # its traceback holds this frame


def text_bytes(text: str, errors: str = "strict") -> bytes:
    """In UTF-8. errors="surrogateescape": bytes that Python could not decode are themselves again."""
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError as e:
        raise ArgumentError(f"text with half a character at {e.start}: {text!r}") from None


def path_bytes(path: str | os.PathLike[str], name: str) -> bytes:
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError as e:
        raise ArgumentError(f"{name}: half a character at {e.start}: {path!r}") from None
    if b"\0" in data:
        raise ArgumentError(f"{name}: a path with a zero character: {path!r}")
    return data


def optional_bytes(text: str | None) -> bytes | None:
    """A C string, or NULL for None."""
    if text is None:
        return None
    if "\0" in text:
        raise ArgumentError(f"text with a zero character: {text!r}")
    return text_bytes(text)


def c_strings(texts: tuple[str, ...]) -> Any:
    """A char*[] of the texts; None when there is none."""
    if not texts:
        return None
    return (c.c_char_p * len(texts))(*[optional_bytes(t) for t in texts])
