# SPDX-License-Identifier: MIT
"""Completions of texts in the shape of OpenAI's API, as dictionaries."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, cast
from collections.abc import Iterable, Mapping, Sequence

from .completion import (Completion, CompletionStream, arguments_of, biases, finish_reason, only,
                         without_idle)
from .errors import ArgumentError
from .info import GenerateResult
from .sampling import Piece

if TYPE_CHECKING:
    from .model import Model
    from .session import Session
    from .tokenizer import Tokenizer

Prompt = str | list[int]


def _prompts(prompt: Any) -> list[Prompt]:
    """One text or one list of token ids, or several of them."""
    if isinstance(prompt, str):
        return [prompt]
    items = list(prompt) if isinstance(prompt, Sequence) and not isinstance(prompt, bytes) else []
    if items and all(isinstance(item, int) for item in items):
        return [cast("list[int]", items)]
    if not items or not all(isinstance(item, (str, list, tuple)) for item in items):
        raise ArgumentError("prompt: expected a str, a list of token ids, or a list of such")
    return [item if isinstance(item, str) else list(item) for item in items]


class _Logprobs:
    """The lists of "logprobs", with offsets into the text that go on from chunk to chunk."""

    def __init__(self, tokenizer: Tokenizer, n_top: int, offset: int) -> None:
        self._tokenizer = tokenizer
        self._n_top = n_top
        self._offset = offset

    def of(self, pieces: Iterable[Piece]) -> Completion:
        found: Completion = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for piece in pieces:
            if piece.token >= 0:
                found["tokens"].append(self._tokenizer.decode([piece.token]))
                found["token_logprobs"].append(piece.logprob)
                found["top_logprobs"].append(
                    {self._tokenizer.decode([t.token]): t.logprob for t in piece.top[:self._n_top]})
                found["text_offset"].append(self._offset)
            self._offset += len(piece.text)
        return found


class _Answer:
    def __init__(self, model: Model, name: str | None, n_top: int | None, echoed: str = "") -> None:
        self.common = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion",
                       "created": int(time.time()), "model": name or model.info.name}
        self._logprobs = None if n_top is None else _Logprobs(model.tokenizer, n_top, len(echoed))

    def choice(self, index: int, text: str, pieces: Iterable[Piece], finish: str | None) -> Completion:
        logprobs = None if self._logprobs is None else self._logprobs.of(pieces)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}


class _Chunks:
    """The chunks of an answer, of which the first has what is echoed."""

    def __init__(self, answer: _Answer, echoed: str) -> None:
        self._answer = answer
        self._echoed = echoed

    def __call__(self, pieces: list[Piece], finish: str | None) -> Completion:
        text, self._echoed = self._echoed + "".join(p.text for p in pieces), ""
        return {**self._answer.common, "choices": [self._answer.choice(0, text, pieces, finish)]}


def _options(session: Session, arguments: Mapping[str, Any]) -> Completion:
    """The arguments of Session.generate(), of those of the API."""
    options = without_idle(arguments, {"best_of": 1, "suffix": ""})
    bias = options.pop("logit_bias", None)
    only(options, arguments_of(session.generate) - {"logprobs", "bias"}, "create_completion")
    if bias is not None:
        options["bias"] = biases(bias)
    return {"max_tokens": 16, **options}


def _stream(model: Model, session: Session, prompt: Prompt, echo: bool, logprobs: int | None, name: str | None,
            options: Completion) -> CompletionStream:
    echoed = _echo(model, prompt) if echo else ""
    chunks = _Chunks(_Answer(model, name, logprobs, echoed), echoed)
    return CompletionStream(chunks, session.generate(prompt, **options), session.close)


def _whole(model: Model, session: Session, prompts: list[Prompt], echo: bool, logprobs: int | None, name: str | None,
           options: Completion) -> Completion:
    common: Completion = {}
    choices, n_prompt, n_generated = [], 0, 0
    for i, prompt in enumerate(prompts):
        session.rewind(0)
        echoed = _echo(model, prompt) if echo else ""
        answer = _Answer(model, name, logprobs, echoed)
        generation = session.generate(prompt, **options)
        pieces = list(generation)
        result = cast(GenerateResult, generation.result)
        text = echoed + "".join(p.text for p in pieces)
        common = common or answer.common
        choices.append(answer.choice(i, text, pieces, finish_reason(result)))
        n_prompt, n_generated = n_prompt + result.n_prompt, n_generated + result.n_generated
    usage = {"prompt_tokens": n_prompt, "completion_tokens": n_generated, "total_tokens": n_prompt + n_generated}
    return {**common, "choices": choices, "usage": usage}


def complete_text(model: Model, prompt: Any, stream: bool, echo: bool, logprobs: int | None, name: str | None,
                  context: int, arguments: Mapping[str, Any]) -> Completion | CompletionStream:
    """The work of Model.create_completion()."""
    prompts = _prompts(prompt)
    logprobs = None if logprobs is False else logprobs  # as conversations have it
    if stream and len(prompts) > 1:
        raise ArgumentError(f"stream: expected one prompt, found {len(prompts)}")
    session = model.session(context=context)
    try:
        options = {**_options(session, arguments), "logprobs": logprobs or 0}
        if stream:
            return _stream(model, session, prompts[0], echo, logprobs, name, options)
        answer = _whole(model, session, prompts, echo, logprobs, name, options)
    except BaseException:
        session.close()
        raise
    session.close()
    return answer


def _echo(model: Model, prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else model.decode(prompt, skip_special=True)
