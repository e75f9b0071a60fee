"""Chat completions in the shape of OpenAI's API, as dictionaries."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Union
from collections.abc import Callable, Iterable, Mapping, Sequence

from ._asynchronous import Asynchronous
from ._handle import Uncopyable
from .errors import ArgumentError
from .info import ChatResult
from .sampling import Piece
from .tokenizer import Tokenizer
from ._structs import Finish

if TYPE_CHECKING:
    from .chat import Chat, Reply

Completion = dict[str, Any]
Content = Union[str, Sequence[Mapping[str, Any]], None]


def _text(content: Content) -> str:
    """A string, or the parts {"type": "text", "text": ...} of one."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.get("type") != "text":
            raise ArgumentError("messages: expected parts of the type 'text', found "
                                f"{part.get('type')!r}")
    return "".join(part["text"] for part in content)


def _messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{"role": m["role"], "content": _text(m.get("content"))} for m in messages]


def _logprob(tokenizer: Tokenizer, token: int, logprob: float) -> Completion:
    text = tokenizer.decode([token])
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _logprobs(pieces: Iterable[Piece], tokenizer: Tokenizer) -> Completion:
    content = []
    for piece in pieces:
        if piece.token >= 0 and not piece.thinking:
            top = [_logprob(tokenizer, t.token, t.logprob) for t in piece.top]
            content.append({**_logprob(tokenizer, piece.token, piece.logprob), "top_logprobs": top})
    return {"content": content}


def _finish_reason(result: ChatResult | None) -> str:
    return "length" if result is None or result.finish in (Finish.LENGTH, Finish.CONTEXT) else "stop"


class _Answer:
    """What all chunks of one answer have in common."""

    def __init__(self, chat: Chat, kind: str, logprobs: bool) -> None:
        self._common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()),
                        "model": chat.session.model.info.name}
        self._tokenizer = chat.session.model.tokenizer if logprobs else None

    def choice(self, key: str, value: Completion, pieces: Iterable[Piece], finish: str | None) -> Completion:
        logprobs = None if self._tokenizer is None else _logprobs(pieces, self._tokenizer)
        choice = {"index": 0, key: value, "logprobs": logprobs, "finish_reason": finish}
        return {**self._common, "choices": [choice]}


def _split(pieces: Iterable[Piece]) -> Completion:
    """The content of pieces and, where there is any, the thinking."""
    parts: Completion = {}
    for piece in pieces:
        key = "reasoning_content" if piece.thinking else "content"
        parts[key] = parts.get(key, "") + piece.text
    return parts


def whole(chat: Chat, reply: Reply, logprobs: bool) -> Completion:
    answer = _Answer(chat, "chat.completion", logprobs)
    pieces = list(reply)
    result = reply.result
    assert result is not None
    message = {"role": "assistant", "content": "", **_split(pieces)}
    usage = {"prompt_tokens": result.n_prompt, "completion_tokens": result.n_generated,
             "total_tokens": result.n_prompt + result.n_generated}
    return {**answer.choice("message", message, pieces, _finish_reason(result)), "usage": usage}


class CompletionStream(Uncopyable, Asynchronous[Completion]):
    """Chunks of an answer, for `for` and `async for`. close(), or leaving the `with` statement, ends it early."""

    _what = "stream"
    _done = True  # until it is made

    def __init__(self, chat: Chat, reply: Reply, logprobs: bool, at_end: Callable[[], None]) -> None:
        self._answer = _Answer(chat, "chat.completion.chunk", logprobs)
        self._reply = reply
        self._at_end = at_end
        self._role: Completion = {"role": "assistant"}  # in the first chunk
        self._done = False

    def _chunk(self, pieces: list[Piece], finish: str | None) -> Completion:
        role, self._role = self._role, {}
        return self._answer.choice("delta", {**role, **_split(pieces)}, pieces, finish)

    def __next__(self) -> Completion:
        if self._done:
            raise StopIteration
        try:
            piece = next(self._reply, None)
        except BaseException:
            self.close()
            raise
        if piece is not None:
            return self._chunk([piece], None)
        last = self._chunk([], _finish_reason(self._reply.result))
        self.close()
        return last

    def close(self) -> None:
        if not self._done:
            self._done = True
            self._reply.close()
            self._at_end()

    def __enter__(self) -> CompletionStream:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def complete(chat: Chat, messages: Iterable[Mapping[str, Any]], stream: bool, logprobs: bool,
             top_logprobs: int | None, logit_bias: Mapping[Any, float] | None, at_end: Callable[[], None],
             sampling: Mapping[str, Any]) -> Completion | CompletionStream:
    """The work of create_chat_completion(); at_end is called when nothing uses the chat any more."""
    try:
        if top_logprobs and not logprobs:
            raise ArgumentError("top_logprobs goes with logprobs=True")
        chat.messages = _messages(messages)
        bias = {int(token): value for token, value in (logit_bias or {}).items()}
        reply = chat.reply(logprobs=top_logprobs or 0, bias=bias, **sampling)
        if stream:
            streamed = CompletionStream(chat, reply, logprobs, at_end)
            at_end = _nothing
            return streamed
        return whole(chat, reply, logprobs)
    finally:
        at_end()


def _nothing() -> None:
    pass
