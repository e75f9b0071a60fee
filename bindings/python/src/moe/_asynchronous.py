"""Iterators that an event loop can await."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Asynchronous(Generic[_T]):
    """`async for` over an iterator with close(), whose items are never None. Each item is made in a thread of the
    loop's executor. A task that is cancelled ends the iterator, within one layer's time."""

    def __aiter__(self: Asynchronous[_T]) -> Asynchronous[_T]:
        return self

    async def __anext__(self) -> _T:
        try:
            item: _T | None = await asyncio.to_thread(next, self, None)  # type: ignore[call-overload]
        except asyncio.CancelledError:
            self.close()
            raise
        if item is None:
            raise StopAsyncIteration
        return item

    def close(self) -> None:
        raise NotImplementedError
