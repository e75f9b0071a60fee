# SPDX-License-Identifier: MIT
"""Generation as an iterator.

The library generates in one call that hands each piece to a callback. That call runs in a thread of
its own, which waits in the callback until the next piece is asked for: nothing is computed ahead,
and a generation that is dropped ends exactly where it was left.

Signal handlers run in the main thread between any two steps of next() and close(), and may raise or
call close() there. So each step can be repeated: what the thread made lies in a slot until it was
handed out, and the queues say only that there may be news.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import weakref
from typing import Any
from collections.abc import Sequence

from ._asynchronous import Asynchronous
from ._handle import Uncopyable
from ._making import End, Generate, Handover, LogitsProcessor, Request, generate_text, run
from .errors import CancelledError, StateError
from .info import GenerateResult
from .sampling import Piece

_PATIENCE = 0.05  # seconds between two attempts to cancel


def stop_texts(stop: str | Sequence[str]) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)


class Generation(Uncopyable, Asynchronous[Piece]):
    """Pieces of text as they are made, for `for` and `async for`; `result` says at the end why it
    ended and what it took.

    While it is unfinished the session is in use: other calls on it raise StateError, except
    Session.cancel() and Session.close(). close(), or leaving the `with` statement, ends it early;
    the session then holds the prompt and every piece that was handed out. A forked process cannot
    go on with its parent's generation.
    """

    _what = "generation"
    _generate: Generate = staticmethod(generate_text)

    def __init__(self, session: Any, request: Request,
                 logits_processor: LogitsProcessor | None = None) -> None:
        self._session = session
        self._request = request
        self._processor = logits_processor
        self._handover = Handover()
        self._handed: Piece | None = None  # the last piece that next() returned
        self._pid: int | None = None  # of the process that the thread is in
        self._done = False
        self._fetching = threading.RLock()  # a signal handler may call close() inside next()
        self.result: GenerateResult | None = None

    def __repr__(self) -> str:
        if self.result is not None:
            told = f"{self.result.n_generated} tokens, finish {self.result.finish.name}"
        elif self._done:
            told = "ended without a result"
        else:
            told = "in progress" if self._handover.begun else "not begun"
        return f"<moe.{type(self).__name__} {told}>"

    def _start(self) -> None:
        """Starts the thread. A signal in between may start several; one of them goes on."""
        session = self._session
        if session is None:  # closed by a signal handler
            return
        owner = None if self._processor is None else weakref.ref(self)
        thread = threading.Thread(
            target=run,
            args=(session._open(), self._generate, self._request, self._handover, owner),
            name="moe.generate", daemon=True)
        self._pid = os.getpid()
        _unfinished.add(self)
        session._begun(self)
        thread.start()

    def _next_item(self) -> Piece | End:
        handover = self._handover
        if handover.piece is self._handed:
            handover.piece = None
        if handover.told() is None:
            if handover.begun:
                handover.go_on()
            else:
                self._start()
        while (item := handover.told()) is None:
            self._wait()
        return item

    def __next__(self) -> Piece:
        if self._is_of_parent():
            raise StateError("the generation was begun by another process, before a fork")
        if self._is_maker():
            raise StateError("the generation is making a piece")
        session = self._session
        item: Piece | End | None = None
        try:
            with self._fetching:
                if self._done:
                    raise StopIteration
                item = self._next_item()
                if isinstance(item, Piece):
                    self._handed = item
                else:
                    self._end(item)
        except BaseException:
            if self._handed is item:  # a signal came behind the assignment
                self._handed = None
            raise
        if isinstance(item, Piece):
            return item
        if isinstance(item, BaseException):
            try:
                session._raise_watched()
                raise item
            finally:
                del item, session  # the traceback holds this frame
        raise StopIteration

    def _end(self, end: End) -> None:
        if isinstance(end, GenerateResult):
            self.result = end
        _unfinished.discard(self)
        maker = self._handover.maker
        if maker is not None:
            maker.join()
        self._done = True
        self._session = None
        if isinstance(end, BaseException):  # whose traceback may hold the session
            self._handover.end = CancelledError("the generation has ended")

    def _is_of_parent(self) -> bool:
        """In a forked process, which has no such thread."""
        return self._pid is not None and self._pid != os.getpid()

    def _is_maker(self) -> bool:
        """In a callback of the call, which cannot wait for its end."""
        maker = self._handover.maker
        return (maker is not None and maker.ident == threading.get_ident()
                and self._handover.end is None)

    def close(self) -> None:
        """Ends the generation where it is. Any number of times, from any thread; another one that
        waits in next() gets CancelledError or a last piece. In a logits_processor or a watcher of
        the session it does not wait for the end."""
        if self._done:  # _end() drops the session, which closes its generations
            return
        if self._is_of_parent():
            self._done, self._session = True, None
            return
        self._handover.stop()
        if self._is_maker():
            self._cancel()
            return
        session = self._session
        with self._fetching:
            if self._done:
                return
            end = self._last()
            self._end(end)
        self._handover.news.put(None)  # for the next() that a signal handler came here from
        if isinstance(end, BaseException):
            session._raise_watched()
            if not isinstance(end, CancelledError):
                raise end

    def _last(self) -> End:
        """How the call ended."""
        handover = self._handover
        if handover.claim(None):
            handover.end = CancelledError("the generation was closed before it began")
        while handover.end is None:
            self._wait()
        return handover.end

    def _wait(self) -> None:
        """For news. Once the end is asked for, cancels again and again, because a call that has
        only just begun does not hear it."""
        if not self._handover.stopped:
            self._handover.news.get()
            return
        self._cancel()
        with contextlib.suppress(queue.Empty):
            self._handover.news.get(timeout=_PATIENCE)

    def _cancel(self) -> None:
        """Ends the call, if a piece is being made."""
        session = self._session
        if self._handover.piece is None and session is not None:
            with contextlib.suppress(StateError):  # closed meanwhile
                session.cancel()

    def text(self) -> str:
        """The rest of the text."""
        return "".join(piece.text for piece in self)

    def tokens(self) -> list[int]:
        """The remaining tokens."""
        return [piece.token for piece in self if piece.token >= 0]

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


_unfinished: weakref.WeakSet[Generation] = weakref.WeakSet()


@atexit.register
def _close_unfinished() -> None:
    """Before the interpreter ends, which no thread inside a callback survives."""
    with contextlib.ExitStack() as stack:
        for generation in list(_unfinished):
            stack.callback(generation.close)
