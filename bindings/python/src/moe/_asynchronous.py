"""Iterators that an event loop can await."""

from __future__ import annotations

import asyncio
from typing import TypeVar
from collections.abc import AsyncIterator, Iterator

_T = TypeVar("_T")


class Asynchronous(Iterator[_T], AsyncIterator[_T]):
    """An iterator with close() for `async for` too; its items are never None. Each is made in a thread
    of the loop's executor. A task that is cancelled ends the iterator, within one layer's time."""

    async def __anext__(self) -> _T:
        try:
            item = await asyncio.to_thread(self._next)
        except asyncio.CancelledError:
            self.close()
            raise
        if item is None:
            raise StopAsyncIteration
        return item

    def _next(self) -> _T | None:
        return next(self, None)  # StopIteration cannot pass through a future

    def close(self) -> None:
        raise NotImplementedError
