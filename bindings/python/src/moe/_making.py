# SPDX-License-Identifier: MIT
"""The thread of a generation, which makes its pieces; see generation.py."""

from __future__ import annotations

import ctypes as c
import dataclasses
import json
import queue
import threading
from typing import Any, Literal, Union
from collections.abc import Callable

import numpy as np

from . import _structs as s
from ._arrays import FloatArray, IntArray, address, int32
from ._constants import Finish, PIECE_THINKING, PIECE_TOOL_CALL
from ._handle import Native, Raised, c_strings
from ._library import call, lib
from .errors import ShapeError
from .grammar import Grammar
from .info import GenerateResult, plain
from .sampling import Piece, Sampling, n_candidates, sampling_struct, top_of

# Gets the tokens of the text so far and the logits of the next one, in arrays of its own. It changes
# the logits in place, or returns others. False ends the generation.
LogitsProcessor = Callable[[IntArray, FloatArray], Union[FloatArray, Literal[False], None]]


@dataclasses.dataclass(frozen=True)
class Request:
    """Parameters of a generation."""

    prompt: IntArray
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...]
    ignore_eos: bool
    n_top: int
    max_draft: int = 0
    question: str | None = None  # of a chat's reply
    grammar: Grammar | None = None


End = Union[GenerateResult, BaseException]


class Handover:
    """Between the thread and the iterator, so that the thread does not hold the iterator."""

    def __init__(self) -> None:
        self.piece: Piece | None = None  # the thread makes the next one when it is taken away
        self.end: End | None = None  # of the call
        self.stopped = False
        self.news: queue.SimpleQueue[None] = queue.SimpleQueue()  # for the iterator
        self._go_on: queue.SimpleQueue[None] = queue.SimpleQueue()  # for the thread
        self._claimed: dict[str, threading.Thread | None] = {}

    @property
    def begun(self) -> bool:
        return bool(self._claimed)

    @property
    def maker(self) -> threading.Thread | None:
        """The thread, once it has begun."""
        return self._claimed.get("by")

    def claim(self, thread: threading.Thread | None) -> bool:
        """Whether this thread makes the pieces: the first that asks. None: no thread will."""
        return self._claimed.setdefault("by", thread) is thread

    def give(self, piece: Piece) -> bool:
        """Waits until the next piece is asked for; False: it is not, the call shall end."""
        self.piece = piece
        self.news.put(None)
        while self.piece is not None and not self.stopped:
            self._go_on.get()
        return not self.stopped

    def finish(self, end: End) -> None:
        self.end = end
        self.news.put(None)

    def told(self) -> Piece | End | None:
        piece = self.piece
        return self.end if piece is None else piece

    def go_on(self) -> None:
        self._go_on.put(None)

    def stop(self) -> None:
        self.stopped = True
        self._go_on.put(None)
        self.news.put(None)


def _piece(piece: Any) -> Piece:
    p = piece.contents
    text = c.string_at(p.text, p.n_bytes).decode("utf-8", "replace")
    is_call = bool(p.flags & PIECE_TOOL_CALL)
    return Piece(p.token, "" if is_call else text, p.logprob, top_of(p.top, p.n_top),
                 bool(p.flags & PIECE_THINKING), json.loads(text) if is_call else None)


Generate = Callable[[Native, Request, s.GenerateParams, Raised], GenerateResult]


def generate_text(native: Native, request: Request, params: s.GenerateParams,
                  raised: Raised) -> GenerateResult:
    """The call of a Session."""
    result = s.GenerateResult()
    raised.call(call, lib.moe_session_generate, native.pointer, address(request.prompt),
                len(request.prompt), c.byref(params), c.byref(result))
    return plain(GenerateResult, result, finish=Finish(result.finish))


def _process(process: LogitsProcessor, tokens: Any, n_tokens: int, logits: Any, n: int) -> bool:
    row = np.ctypeslib.as_array(logits, (n,))
    changed = row.copy()
    returned = process(np.ctypeslib.as_array(tokens, (n_tokens,)).copy(), changed)
    if returned is False:
        return False
    if returned is not None:
        changed = np.asarray(returned)
    if changed.shape != row.shape:
        raise ShapeError(f"logits_processor: expected {row.shape}, returned {changed.shape}")
    row[:] = changed
    return True


# Gives the generation, whose processor is called; None once it was dropped, because the thread does
# not hold it.
Owner = Callable[[], Any]


def _logits_callback(owner: Owner | None, handover: Handover, raised: Raised) -> Any:
    if owner is None:
        return s.LogitsFn(0)
    processed_by = owner

    def change(_user: Any, *arguments: Any) -> bool:
        generation = processed_by()
        if generation is None or handover.stopped:
            return False
        return _process(generation._processor, *arguments) and not handover.stopped

    return s.LogitsFn(raised.guard(change, False))


def _params(request: Request, handover: Handover, owner: Owner | None,
            raised: Raised, grammar: Native | None) -> s.GenerateParams:
    def give(_user: Any, piece: Any) -> bool:
        return handover.give(_piece(piece))

    return s.GenerateParams(
        max_tokens=request.max_tokens, sampling=c.pointer(sampling_struct(request.sampling)),
        stop=c_strings(request.stop), n_stop=len(request.stop),
        ignore_eos=int(request.ignore_eos), n_top=n_candidates(request.n_top),
        max_draft=int32(request.max_draft, "max_draft"),
        piece=s.PieceFn(raised.guard(give, False)),
        logits=_logits_callback(owner, handover, raised),
        grammar=None if grammar is None else grammar.pointer)


def run(native: Native, generate: Generate, request: Request, handover: Handover,
        owner: Owner | None) -> None:
    if not handover.claim(threading.current_thread()):
        return
    raised = Raised()
    try:
        native.hold()
        grammar = None
        try:
            if request.grammar is not None:
                grammar = request.grammar._open()
                grammar.hold()
            params = _params(request, handover, owner, raised, grammar)
            end: End = generate(native, request, params, raised)
        finally:
            if grammar is not None:
                grammar.release()
            native.release()
    except (StopIteration, StopAsyncIteration) as e:  # would end a loop over the pieces unseen
        end = RuntimeError(f"logits_processor raised {type(e).__name__}")
        end.__cause__ = e
    except BaseException as e:
        end = e
    handover.finish(end)
    del end  # its traceback holds this frame
