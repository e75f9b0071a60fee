"""Many prompts, several of them decoded at once."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Union
from collections.abc import Iterable, Iterator

from ._arrays import IntArray, Tokens, token_array
from ._structs import Finish
from .errors import (ArgumentError, BudgetError, NonFiniteError, TextError, TooLongError,
                     UnsupportedError)
from .generation import Request
from .session import Session, append_each
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .model import Model

Prompt = Union[str, Tokens]

# What a prompt can be at fault for; anything else ends the batch. Most are ValueErrors.
_OF_A_PROMPT = (TypeError, ValueError, TooLongError, TextError)


@dataclasses.dataclass(frozen=True)
class BatchResult:
    """What became of one prompt; with an `error` the other fields say nothing."""

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
    prompt: IntArray
    made: list[int] = dataclasses.field(default_factory=list)
    before: str | None = None  # the prompt, decoded


class Batch:
    """Gives the results in order; see Model.batch()."""

    def __init__(self, model: Model, request: Request, n_sessions: int, made_with: dict[str, Any]) -> None:
        self._model, self._request, self._n_sessions, self._made_with = model, request, n_sessions, made_with
        self._eos = () if request.ignore_eos else model.info.eos_tokens
        self._tokenizer: Tokenizer | None = None
        with contextlib.suppress(UnsupportedError):
            self._tokenizer = model.tokenizer
        if request.stop and self._tokenizer is None:
            raise UnsupportedError("stop strings need a model with a tokenizer")
        self._sessions: list[Session] = []
        self._free: list[Session] = []
        self._running: list[_Text] = []
        self._ready: dict[int, BatchResult] = {}  # that wait for earlier ones
        self._n_given = 0

    def results(self, prompts: Iterable[Prompt]) -> Iterator[BatchResult]:
        todo: Iterator[tuple[int, Prompt]] = enumerate(prompts)
        try:
            while True:
                while self._may_begin() and (item := next(todo, None)) is not None:
                    if not self._has_session():
                        todo = itertools.chain([item], todo)
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
        except BudgetError:
            if not self._sessions:
                raise
            self._n_sessions = len(self._sessions)  # the memory cap has no room for more
            return
        self._sessions.append(session)
        self._free.append(session)

    def _begin(self, index: int, prompt: Prompt) -> None:
        session = self._free.pop()
        text = _Text(index, session, token_array(()))
        self._running.append(text)
        try:
            text.prompt = token_array(self._model.encode(prompt) if isinstance(prompt, str) else prompt)
            if len(text.prompt) == 0:
                raise ArgumentError("the prompt has no tokens")
            session.rewind(0)
            session.append(text.prompt)
        except _OF_A_PROMPT as e:
            self._refuse(text, e)
        else:
            self._go_on(text)

    def _end(self, text: _Text, result: BatchResult) -> None:
        self._ready[text.index] = result
        self._running.remove(text)
        self._free.append(text.session)

    def _refuse(self, text: _Text, error: Exception) -> None:
        self._end(text, BatchResult(error=error.with_traceback(None)))

    def _finish(self, text: _Text, finish: Finish) -> None:
        made = self._decode(text)
        result = BatchResult(made[:self._stop_in(made)], tuple(text.made), finish, len(text.prompt))
        self._end(text, result)

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
        if self._request.stop and self._stop_in(self._decode(text)) is not None:
            return self._finish(text, Finish.STOP)
        if len(text.made) == self._request.max_tokens:
            self._finish(text, Finish.LENGTH)

    def _step(self) -> None:
        texts = list(self._running)
        try:
            append_each([text.session for text in texts], [text.made[-1] for text in texts])
        except NonFiniteError:  # of one of them: none has moved
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

    def _stop_in(self, made: str) -> int | None:
        """Where the stop string begins that is complete first; of several the longest."""
        ends = [(at + len(stop), at) for stop in self._request.stop if (at := made.find(stop)) >= 0]
        return min(ends)[1] if ends else None

    def _decode(self, text: _Text) -> str:
        """The new text, as it goes on behind the prompt: a leading space, or the rest of a character."""
        tokenizer = self._tokenizer
        if tokenizer is None:
            return ""

        def decoded(tokens: Iterable[int]) -> str:  # ids in a vocabulary's padding have no text
            return tokenizer.decode([t for t in tokens if tokenizer.piece(t) is not None], skip_special=True)

        if text.before is None:
            text.before = decoded(text.prompt.tolist())
        before, whole = text.before, decoded([*text.prompt.tolist(), *text.made])
        if not whole.startswith(before):
            before = before.removesuffix("\ufffd")  # the start of a character
        return whole.removeprefix(before) if whole.startswith(before) else decoded(text.made)
