"""Generation as an iterator.

The library generates in one call that hands each piece to a callback. That call runs in a thread of
its own, which waits in the callback until the next piece is asked for: nothing is computed ahead,
and a generation that is dropped ends exactly where it was left.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes as c
import dataclasses
import queue
import threading
import weakref
from typing import Any, Union
from collections.abc import Callable, Sequence

import numpy as np

from . import _structs as s
from ._arrays import FloatArray, IntArray, address
from ._asynchronous import Asynchronous
from ._handle import Native, Raised, Uncopyable, c_strings
from ._library import call, lib
from ._structs import Finish
from .errors import CancelledError, ShapeError, StateError
from .info import GenerateResult, plain
from .sampling import Piece, Sampling, sampling_struct, top_of


# Gets the tokens of the text so far and the logits of the next one, in arrays of its own. It changes
# the logits in place, or returns others.
LogitsProcessor = Callable[[IntArray, FloatArray], Union[FloatArray, None]]


@dataclasses.dataclass(frozen=True)
class Request:
    """Parameters of a generation."""

    prompt: IntArray
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...]
    ignore_eos: bool
    n_top: int
    logits_processor: LogitsProcessor | None = None


def stop_texts(stop: str | Sequence[str]) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)


_PATIENCE = 0.05  # seconds between two attempts to cancel

_Item = Union[Piece, GenerateResult, BaseException]


class _Channel:
    """Between the thread and the iterator, so that the thread does not hold the iterator."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self.go_on: queue.SimpleQueue[bool] = queue.SimpleQueue()


def _piece(piece: Any) -> Piece:
    p = piece.contents
    text = c.string_at(p.text, p.n_bytes).decode("utf-8", "replace")
    return Piece(p.token, text, p.logprob, top_of(p.top, p.n_top),
                 bool(p.flags & s.PIECE_THINKING))


Generate = Callable[[Native, Request, s.GenerateParams, Raised], GenerateResult]


def generate_text(native: Native, request: Request, params: s.GenerateParams,
                  raised: Raised) -> GenerateResult:
    """The call of a Session."""
    result = s.GenerateResult()
    raised.call(call, lib.moe_session_generate, native.pointer, address(request.prompt),
                len(request.prompt), c.byref(params), c.byref(result))
    return plain(GenerateResult, result, finish=Finish(result.finish))


def _process(process: LogitsProcessor, tokens: Any, n_tokens: int, logits: Any, n: int) -> None:
    row = np.ctypeslib.as_array(logits, (n,))
    changed = row.copy()
    returned = process(np.ctypeslib.as_array(tokens, (n_tokens,)).copy(), changed)
    if returned is not None:
        changed = np.asarray(returned)
    if changed.shape != row.shape:
        raise ShapeError(f"logits_processor: expected {row.shape}, returned {changed.shape}")
    row[:] = changed


def _logits_callback(process: LogitsProcessor | None, raised: Raised) -> Any:
    if process is None:
        return s.LogitsFn()
    function = process

    def change(_user: Any, tokens: Any, n_tokens: int, logits: Any, n: int) -> bool:
        _process(function, tokens, n_tokens, logits, n)
        return True

    return s.LogitsFn(raised.guard(change, False))


def _run(native: Native, generate: Generate, request: Request, channel: _Channel) -> None:
    raised = Raised()

    def give(_user: Any, piece: Any) -> bool:
        channel.items.put(_piece(piece))
        return channel.go_on.get()

    try:
        sampling = sampling_struct(request.sampling)
        params = s.GenerateParams(
            max_tokens=request.max_tokens, sampling=c.pointer(sampling),
            stop=c_strings(request.stop), n_stop=len(request.stop),
            ignore_eos=int(request.ignore_eos), n_top=request.n_top,
            callback=s.PieceFn(raised.guard(give, False)),
            logits_callback=_logits_callback(request.logits_processor, raised))
        end: _Item = generate(native, request, params, raised)
    except (StopIteration, StopAsyncIteration) as e:  # would end a loop over the pieces unseen
        end = RuntimeError(f"logits_processor raised {type(e).__name__}")
        end.__cause__ = e
    except BaseException as e:
        end = e
    native.release()
    channel.items.put(end)


class Generation(Uncopyable, Asynchronous[Piece]):
    """Pieces of text as they are made, for `for` and `async for`; `result` says at the end why it
    ended and what it took.

    While it is unfinished the session is in use: other calls on it raise StateError, except
    Session.cancel() and Session.close(). close(), or leaving the `with` statement, ends it early;
    the session then holds the prompt and every piece that was handed out.
    """

    _what = "generation"
    _generate: Generate = staticmethod(generate_text)

    def __init__(self, session: Any, request: Request) -> None:
        self._session = session
        self._request = request
        self._channel = _Channel()
        self._thread: threading.Thread | None = None
        self._done = False
        self._awaiting = False  # a piece was asked for and not fetched yet
        self._fetching = threading.Lock()
        self.result: GenerateResult | None = None

    def __repr__(self) -> str:
        if self.result is not None:
            told = f"{self.result.n_generated} tokens, finish {self.result.finish.name}"
        elif self._done:
            told = "ended without a result"
        else:
            told = "not begun" if self._thread is None else "in progress"
        return f"<moe.{type(self).__name__} {told}>"

    def _start(self) -> None:
        native = self._session._open()
        thread = threading.Thread(
            target=_run, args=(native, self._generate, self._request, self._channel),
            name="moe.generate", daemon=True)
        native.hold()
        _unfinished.add(self)
        self._thread = thread
        thread.start()

    def _ask(self) -> None:
        """For the next piece. From here on close() in another thread cancels the call."""
        self._awaiting = True
        try:
            if self._thread is None:
                self._start()
            else:
                self._channel.go_on.put(True)
        except BaseException:
            self._awaiting = False
            raise

    def __next__(self) -> Piece:
        with self._fetching:
            if self._done:
                raise StopIteration
            if not self._awaiting:  # otherwise a KeyboardInterrupt left a piece to be fetched
                self._ask()
            item = self._channel.items.get()
            self._awaiting = False
            if isinstance(item, Piece):
                return item
            session = self._session
            self._end(item)
        if isinstance(item, BaseException):
            session._raise_watched()
            raise item
        raise StopIteration

    def _end(self, item: GenerateResult | BaseException) -> None:
        self._done = True
        _unfinished.discard(self)
        if isinstance(item, GenerateResult):
            self.result = item
        if self._thread is not None:
            self._thread.join()
        self._session = None

    def close(self) -> None:
        """Ends the generation where it is. Any number of times, from any thread; another one that
        waits in next() gets CancelledError or a last piece."""
        if self._done:  # _end() drops the session, which closes its generation
            return
        self._channel.go_on.put(False)
        self._cancel()
        while not self._fetching.acquire(timeout=_PATIENCE):
            self._cancel()
        try:
            if self._done:
                return
            if self._thread is None:
                self._done, self._session = True, None
                return
            item = self._last()
            self._end(item)
        finally:
            self._fetching.release()
        if isinstance(item, BaseException) and not isinstance(item, CancelledError):
            raise item

    def _cancel(self) -> None:
        """Ends the call, if a piece is being made; again and again, because one that has only just
        begun does not hear it."""
        session = self._session
        if self._awaiting and session is not None:
            with contextlib.suppress(StateError):  # closed meanwhile
                session.cancel()

    def _last(self) -> GenerateResult | BaseException:
        """How the call ended, which gets no further piece."""
        while True:
            try:
                item = self._channel.items.get(timeout=_PATIENCE)
            except queue.Empty:
                self._cancel()
                continue
            self._awaiting = False
            if not isinstance(item, Piece):  # one that was made before the cancellation
                return item

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
    for generation in list(_unfinished):
        generation.close()
