# SPDX-License-Identifier: MIT
"""Chat completions in the shape of OpenAI's API, as dictionaries."""

from __future__ import annotations

import inspect
import re
import time
import uuid
from typing import TYPE_CHECKING, Any
from collections.abc import Callable, Iterable, Mapping, Sequence

from ._asynchronous import Asynchronous
from ._constants import Finish
from ._handle import Uncopyable
from .errors import ArgumentError
from .info import ChatResult, GenerateResult
from .sampling import SAMPLING_NAMES, Piece
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .chat import Chat, Reply
    from .generation import Generation

Completion = dict[str, Any]


def given_of(arguments: Any, where: str) -> Completion:
    """The entries of a mapping that are not None: None stands for what was not given."""
    if not isinstance(arguments, Mapping):
        raise ArgumentError(f"{where}: expected a mapping, found {type(arguments).__name__}")
    return {key: value for key, value in arguments.items() if value is not None}


def arguments_of(generate: Callable[..., Any]) -> set[str]:
    """The names of the keyword arguments of Session.generate() or Chat.reply()."""
    parameters = inspect.signature(generate).parameters.values()
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} | SAMPLING_NAMES


def only(arguments: Iterable[str], known: Iterable[str], where: str) -> None:
    unknown = sorted(set(arguments) - set(known), key=str)
    if unknown:
        raise ArgumentError(f"{where}: unknown: {', '.join(map(repr, unknown))}")


# Arguments that clients of the API send anyway: with these values they change nothing.
_WITHOUT_EFFECT: Completion = {"n": 1, "frequency_penalty": 0, "presence_penalty": 0}
_IGNORED = ("user", "metadata", "store")


def _schema(response_format: Any) -> Any:
    """The schema that a response_format asks for; None: any text."""
    given = given_of(response_format, "response_format")
    kind = given.get("type")
    if kind in ("text", "json_object"):
        only(given, ("type",), "response_format")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise ArgumentError(f"response_format: expected the type 'text', 'json_object' or 'json_schema', found {kind!r}")
    only(given, ("type", "json_schema"), "response_format")
    holder = given_of(given.get("json_schema", {}), "response_format.json_schema")
    only(holder, ("name", "description", "schema", "strict"), "response_format.json_schema")
    if "schema" not in holder:
        raise ArgumentError("response_format.json_schema: no 'schema'")
    return holder["schema"]


def without_idle(arguments: Mapping[str, Any], idle: Mapping[str, Any]) -> Completion:
    """The arguments that were given, without those of the API, and of `idle`, that have no effect. A
    response_format becomes a json_schema."""
    given = given_of(arguments, "arguments")
    for key in _IGNORED:
        given.pop(key, None)
    schema = _schema(given.pop("response_format", {"type": "text"}))
    if schema is not None and given.setdefault("json_schema", schema) != schema:
        raise ArgumentError("response_format and json_schema cannot be given together; give one of them")
    for key, value in {**_WITHOUT_EFFECT, **idle}.items():
        if given.pop(key, value) != value:
            raise ArgumentError(f"{key}: expected {value!r}, found {arguments[key]!r}")
    for key in ("max_tokens", "max_completion_tokens"):  # 0 would be no limit
        if isinstance(given.get(key), int) and given[key] < 1:
            raise ArgumentError(f"{key}: expected at least 1, found {given[key]!r}")
    return given


def biases(logit_bias: Any) -> dict[int, float]:
    """The API has the ids of tokens as strings."""
    try:
        return {int(token): value for token, value in (logit_bias or {}).items()}
    except (AttributeError, TypeError, ValueError):
        raise ArgumentError(f"logit_bias: expected a mapping with ids of tokens as keys, found {logit_bias!r}") from None


def _string(arguments: Completion, key: str, where: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str):
        found = "none" if value is None else type(value).__name__
        raise ArgumentError(f"{where}: expected {key!r}, a string, found {found}")
    return value


def _part(part: Any, where: str) -> str:
    given = given_of(part, where)
    if given.get("type") != "text":
        raise ArgumentError(f"{where}: expected the type 'text', found {given.get('type')!r}")
    only(given, ("type", "text"), where)
    return _string(given, "text", where)


def _message(message: Any, where: str) -> dict[str, str]:
    """Its content is a string, or the parts {"type": "text", "text": ...} of one; an answer's may be
    None. An answer's thinking is left out, and so is a name."""
    given = given_of(message, where)
    only(given, ("role", "content", "reasoning_content", "name"), where)
    role, content = _string(given, "role", where), given.get("content")
    if content is None and role == "assistant":
        content = ""
    elif isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
        content = "".join(_part(p, f"{where}: content[{i}]") for i, p in enumerate(content))
    return {"role": role, "content": _string({"content": content}, "content", where)}


def _options(chat: Chat, arguments: Mapping[str, Any]) -> Completion:
    """The arguments of Chat.reply(), of those of the API."""
    given = without_idle(arguments, {})
    most = given.pop("max_completion_tokens", None)
    if most is not None and given.setdefault("max_tokens", most) != most:
        raise ArgumentError("max_tokens and max_completion_tokens are the same; give one of them")
    only(given, arguments_of(chat.reply) - {"logprobs", "bias"}, "create_chat_completion")
    return given


_BROKEN = "\N{REPLACEMENT CHARACTER}"

# How byte-level vocabularies spell a byte: what can be printed as itself, the others from U+0100 on.
_PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {**{chr(b): b for b in _PRINTED}, **{chr(256 + i): b for i, b in enumerate(_OTHERS)}}


def _broken_bytes(piece: str, text: str) -> list[int] | None:
    """The bytes of a token that is part of a character, by how the vocabulary spells it; None: that
    does not tell."""
    if re.fullmatch("<0x[0-9A-Fa-f]{2}>", piece):
        return [int(piece[3:5], 16)]
    if not all(character in _BYTES for character in piece):
        return None
    found = [_BYTES[character] for character in piece]
    return found if bytes(found).decode("utf-8", "replace") == text else None


def _logprob(tokenizer: Tokenizer, token: int, logprob: float) -> Completion:
    """The token as it is behind another one: of the first of a text, tokenizers drop the space."""
    text = tokenizer.decode([token])
    if _BROKEN in text:
        found = _broken_bytes(tokenizer.piece(token) or "", text)
    else:
        text = tokenizer.decode([token, token]).removeprefix(text)
        found = list(text.encode())
    return {"token": text, "logprob": logprob, "bytes": found}


def _logprobs(pieces: Iterable[Piece], tokenizer: Tokenizer) -> Completion:
    content = []
    for piece in pieces:
        if piece.token >= 0 and not piece.thinking:
            top = [_logprob(tokenizer, t.token, t.logprob) for t in piece.top]
            content.append({**_logprob(tokenizer, piece.token, piece.logprob), "top_logprobs": top})
    return {"content": content}


def finish_reason(result: ChatResult | GenerateResult | None) -> str:
    return "length" if result is None or result.finish in (Finish.LENGTH, Finish.CONTEXT) else "stop"


class _Answer:
    """The fields that all chunks of one answer have in common."""

    def __init__(self, chat: Chat, kind: str, model: str | None, logprobs: bool) -> None:
        self._common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()),
                        "model": model or chat.session.model.info.name}
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


def whole(answer: _Answer, reply: Reply) -> Completion:
    pieces = list(reply)
    result = reply.result
    assert result is not None
    message = {"role": "assistant", "content": "", **_split(pieces)}
    usage = {"prompt_tokens": result.n_prompt, "completion_tokens": result.n_generated,
             "total_tokens": result.n_prompt + result.n_generated}
    return {**answer.choice("message", message, pieces, finish_reason(result)), "usage": usage}


class _Deltas:
    """The chunks of an answer to a conversation, of which the first has the role."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer
        self._role: Completion = {"role": "assistant"}

    def __call__(self, pieces: list[Piece], finish: str | None) -> Completion:
        role, self._role = self._role, {}
        return self._answer.choice("delta", {**role, **_split(pieces)}, pieces, finish)


class CompletionStream(Uncopyable, Asynchronous[Completion]):
    """Chunks of an answer, for `for` and `async for`. close(), or leaving the `with` statement, ends it early."""

    _what = "stream"
    _done = True  # until it is made

    def __init__(self, chunk: Callable[[list[Piece], str | None], Completion], generation: Generation,
                 at_end: Callable[[], None]) -> None:
        self._chunk = chunk
        self._reply = generation
        self._at_end = at_end
        self._done = False

    def __next__(self) -> Completion:
        if self._done:
            raise StopIteration
        try:
            piece = next(self._reply, None)
            if piece is not None:
                return self._chunk([piece], None)
            last = self._chunk([], finish_reason(self._reply.result))
        except BaseException:
            self.close()
            raise
        self.close()
        return last

    def close(self) -> None:
        if not self._done:
            self._done = True
            try:
                self._reply.close()
            finally:
                self._at_end()

    def __enter__(self) -> CompletionStream:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def complete(chat: Chat, messages: Iterable[Mapping[str, Any]], stream: bool, logprobs: bool,
             top_logprobs: int | None, logit_bias: Mapping[Any, float] | None, at_end: Callable[[], None],
             model: str | None, arguments: Mapping[str, Any]) -> Completion | CompletionStream:
    """The work of create_chat_completion(); at_end is called when nothing uses the chat any more."""
    try:
        if top_logprobs and not logprobs:
            raise ArgumentError("top_logprobs requires logprobs=True")
        options = _options(chat, arguments)
        bias = biases(logit_bias)
        answer = _Answer(chat, "chat.completion.chunk" if stream else "chat.completion", model, logprobs)
        chat._replace([_message(m, f"messages[{i}]") for i, m in enumerate(messages)])
        reply = chat.reply(logprobs=top_logprobs or 0, bias=bias, **options)
        if stream:
            streamed = CompletionStream(_Deltas(answer), reply, at_end)
            at_end = _nothing
            return streamed
        return whole(answer, reply)
    finally:
        at_end()


def _nothing() -> None:
    pass
