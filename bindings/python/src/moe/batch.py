# SPDX-License-Identifier: MIT
"""Many prompts, several of them decoded at once."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Union
from collections.abc import Generator, Iterable, Iterator

from ._arrays import Tokens, token_array
from ._constants import Finish
from ._making import Request
from ._stream import StopMatcher, StreamDecoder
from .errors import (ArgumentError, BudgetError, NonFiniteError, TextError, TooLongError,
                     UnsupportedError)
from .session import Session
from .together import append_each
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .model import Model

Prompt = Union[str, Tokens]

# Errors that a prompt itself causes; any other ends the batch. Most are ValueErrors.
_OF_A_PROMPT = (TypeError, ValueError, TooLongError, TextError)


@dataclasses.dataclass(frozen=True)
class BatchResult:
    """The result of one prompt; with an `error` the other fields are empty."""

    text: str = ""  # without the prompt; empty where the model has no tokenizer
    tokens: tuple[int, ...] = ()
    finish: Finish | None = None
    n_prompt: int = 0
    error: Exception | None = None


@dataclasses.dataclass(eq=False)
class _Text:
    """A prompt that is being continued."""

    index: int
    session: Session
    stops: StopMatcher
    n_prompt: int = 0
    made: list[int] = dataclasses.field(default_factory=list)
    decoder: StreamDecoder | None = None  # without one there is no text


class Batch:
    """Gives the results in order; see Model.batch()."""

    def __init__(self, model: Model, request: Request, n_sessions: int | None,
                 made_with: dict[str, Any]) -> None:
        self._model, self._request, self._made_with = model, request, made_with
        self._all_or_none = n_sessions is not None
        self._n_sessions = 8 if n_sessions is None else n_sessions
        self._eos = () if request.ignore_eos else model.info.eos_tokens
        self._tokenizer: Tokenizer | None = None
        with contextlib.suppress(UnsupportedError):
            self._tokenizer = model.tokenizer
        if request.stop and self._tokenizer is None:
            raise UnsupportedError("stop strings need a model with a tokenizer")
        self._sessions: list[Session] = []
        self._free: list[Session] = []
        self._running: list[_Text] = []
        self._ready: dict[int, BatchResult] = {}  # results that wait for those of earlier prompts
        self._n_given = 0

    def results(self, prompts: Iterable[Prompt]) -> Generator[BatchResult, None, None]:
        pending: Iterator[tuple[int, Prompt]] = enumerate(prompts)
        try:
            while True:
                while self._may_begin() and (item := next(pending, None)) is not None:
                    if not self._has_session():
                        pending = itertools.chain([item], pending)
                        break
                    self._begin(*item)
                    yield from self._in_order()
                if not self._running:
                    return
                self._step()
                yield from self._in_order()
        finally:
            for session in self._sessions:
                session.close()

    def _in_order(self) -> Iterator[BatchResult]:
        while self._n_given in self._ready:
            result = self._ready.pop(self._n_given)
            self._n_given += 1
            yield result

    def _may_begin(self) -> bool:
        return bool(self._free) or len(self._sessions) < self._n_sessions

    def _has_session(self) -> bool:
        if not self._free:
            self._add_session()
        return bool(self._free)

    def _add_session(self) -> None:
        try:
            session = self._model.session(**self._made_with)
        except BudgetError as e:
            if not self._sessions:
                raise
            if self._all_or_none:
                least = self._model.memory_plan(sessions=self._n_sessions, **self._made_with).least_bytes
                raise BudgetError(f"{self._n_sessions} sessions do not fit under the cap of "
                                  f"{self._model.memory_bytes} bytes: {least} bytes at least; there is "
                                  f"room for {len(self._sessions)}") from e
            self._n_sessions = len(self._sessions)  # the memory cap has no room for more
            return
        self._sessions.append(session)
        self._free.append(session)

    def _begin(self, index: int, prompt: Prompt) -> None:
        text = _Text(index, self._free.pop(), StopMatcher(self._request.stop))
        self._running.append(text)
        try:
            if isinstance(prompt, str) and self._tokenizer is None:
                return self._refuse(text, UnsupportedError("a text as the prompt needs a model with a tokenizer"))
            self._append_prompt(text, prompt)
        except _OF_A_PROMPT as e:
            self._refuse(text, e)
        else:
            self._go_on(text)

    def _append_prompt(self, text: _Text, prompt: Prompt) -> None:
        ids = token_array(self._model.encode(prompt) if isinstance(prompt, str) else prompt)
        if len(ids) == 0:
            raise ArgumentError("the prompt has no tokens")
        text.session.rewind(0)
        text.session.append(ids)
        text.n_prompt = len(ids)
        if self._tokenizer is not None:
            text.decoder = StreamDecoder(self._tokenizer, ids.tolist())

    def _end(self, text: _Text, result: BatchResult) -> None:
        self._ready[text.index] = result
        self._running.remove(text)
        self._free.append(text.session)

    def _refuse(self, text: _Text, error: Exception) -> None:
        self._end(text, BatchResult(error=error.with_traceback(None)))

    def _finish(self, text: _Text, finish: Finish) -> None:
        if text.decoder is not None and not text.stops.stopped and text.stops.push(text.decoder.finish()):
            finish = Finish.STOP
        self._end(text, BatchResult(text.stops.text, tuple(text.made), finish, text.n_prompt))

    def _go_on(self, text: _Text) -> None:
        """Samples a token, after which the text goes on or has ended."""
        if text.session.position == text.session.context:
            return self._finish(text, Finish.CONTEXT)
        try:
            token = text.session.sample(self._request.sampling).token
        except NonFiniteError as e:
            return self._refuse(text, e)
        if token in self._eos:
            return self._finish(text, Finish.EOS)
        text.made.append(token)
        if text.decoder is not None:
            text.decoder.push(token)
            if self._request.stop and text.stops.push(text.decoder.read()):
                return self._finish(text, Finish.STOP)
        if len(text.made) == self._request.max_tokens:
            self._finish(text, Finish.LENGTH)

    def _step(self) -> None:
        texts = list(self._running)
        try:
            append_each([text.session for text in texts], [text.made[-1] for text in texts])
        except NonFiniteError:  # one of them failed, and no session has advanced
            for text in texts:
                self._step_alone(text)
        else:
            for text in texts:
                self._go_on(text)

    def _step_alone(self, text: _Text) -> None:
        try:
            append_each([text.session], text.made[-1:])
        except NonFiniteError as e:
            self._refuse(text, e)
        else:
            self._go_on(text)
