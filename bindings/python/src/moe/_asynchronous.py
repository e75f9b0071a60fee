# SPDX-License-Identifier: MIT
"""Iterators that an event loop can await."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from typing import TypeVar
from collections.abc import AsyncIterator, Iterator

_T = TypeVar("_T")


class Asynchronous(Iterator[_T], AsyncIterator[_T]):
    """An iterator with close() for `async for` too; its items are never None. Each is made in a thread
    of the loop's executor. A task that is cancelled ends the iterator, within one layer's time; the
    loop goes on meanwhile, as the iterator's callbacks may need it."""

    async def __anext__(self) -> _T:
        try:
            item = await asyncio.to_thread(self._next)
        except asyncio.CancelledError as cancelled:
            raise cancelled from await self._closed()
        if item is None:
            raise StopAsyncIteration
        return item

    async def _closed(self) -> BaseException | None:
        """close() in a thread of its own, as the executor's may all be busy, to its end, however often
        the task is cancelled. What it raised."""
        executor = concurrent.futures.ThreadPoolExecutor(1, "moe.close")
        closing = asyncio.get_running_loop().run_in_executor(executor, self.close)
        executor.shutdown(wait=False)
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([closing])
        return closing.exception()

    def _next(self) -> _T | None:
        return next(self, None)  # StopIteration cannot pass through a future

    def close(self) -> None:
        raise NotImplementedError
