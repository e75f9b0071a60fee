# SPDX-License-Identifier: MIT
"""A conversation over a session."""

from __future__ import annotations

import ctypes as c
import dataclasses
import datetime
import json
import weakref
from typing import TYPE_CHECKING, Any, Union
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from . import _structs as s
from ._arrays import address, token_array
from ._constants import Finish, Thinking, ToolChoice
from ._handle import Closable, Native, Raised, c_strings, optional_bytes, text_bytes
from ._library import call, lib, names_of, text_of
from ._making import LogitsProcessor, Request
from ._sized import integer
from .completion import complete
from .errors import ArgumentError
from .generation import Generation, stop_texts
from .grammar import Grammar, Schema, grammar_of
from .info import ChatResult, plain
from .sampling import Sampling, SamplingArguments
from .session import Session

if TYPE_CHECKING:
    from typing_extensions import Unpack

_THINKING = {None: Thinking.DEFAULT, True: Thinking.ON, False: Thinking.OFF}

Variable = Union[str, int, bool, None]


@dataclasses.dataclass(frozen=True)
class Message:
    role: str  # "system", "user", "assistant", or whatever else the template knows
    content: str
    thinking: str = ""  # of a reply
    # Other members, as add_message() takes them: "tool_calls" of a reply, "tool_call_id" of a result.
    members: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def chat_template_names() -> tuple[str, ...]:
    """The built-in templates; "plain" concatenates the messages."""
    return names_of(lib.moe_chat_template_name)


class Reply(Generation):
    """A Generation of a Chat. Its pieces of thinking have Piece.thinking set. The question becomes
    a message of the chat when the first piece is requested, the reply when it has ended. If it
    fails, the question is removed again."""

    result: ChatResult | None

    @staticmethod
    def _generate(native: Native, request: Request, params: s.GenerateParams,
                  raised: Raised) -> ChatResult:
        chat, result = native.pointer, s.ChatResult()
        n_before = lib.moe_chat_message_count(chat)
        if request.question is not None:
            _add(chat, "user", request.question)
        try:
            raised.call(call, lib.moe_chat_reply, chat, c.byref(params), c.byref(result))
        except BaseException:
            call(lib.moe_chat_truncate, chat, n_before)
            raise
        return plain(ChatResult, result, finish=Finish(result.finish))

    def text(self) -> str:
        """The rest of the answer, without thinking and calls of tools."""
        return "".join(piece.text for piece in self if not piece.thinking)


class Chat(Closable):
    """Messages, the template that renders them as text, and replies; see also Model.chat().

    session:   for the conversation; several chats may share one. Each reply evaluates only what
               the session does not contain yet.
    template:  a name of chat_template_names(), or Jinja text. None: the model's own;
               NotFoundError if it has none.
    system:    first message, with the role "system".
    thinking:  selects if the model thinks before it answers; None: the template's default.
               UnsupportedError if the template has no such switch.
    variables: further variables of the template.
    date:      for templates that use it, "YYYY-MM-DD" or a date; None: today, UTC; "": none.

    Messages and variables never produce special tokens. For one thread at a time. A chat remains
    usable after its session was closed.
    """

    _what = "chat"

    def __init__(self, session: Session, *, template: str | None = None,
                 system: str | None = None, thinking: bool | None = None,
                 variables: Mapping[str, Variable] | None = None,
                 date: str | datetime.date | None = None) -> None:
        self._session = session
        self._system = system
        self._replies: weakref.WeakSet[Generation] = weakref.WeakSet()  # that have begun
        assignments = tuple(f"{name}={_variable(v)}" for name, v in (variables or {}).items())
        if isinstance(date, datetime.date):
            date = f"{date:%Y-%m-%d}"
        if thinking not in _THINKING:
            raise ArgumentError(f"thinking: expected True, False or None, found {thinking!r}")
        params = s.ChatParams(thinking=_THINKING[thinking], chat_template=optional_bytes(template),
                              system=optional_bytes(system), variables=c_strings(assignments),
                              n_variables=len(assignments), date=optional_bytes(date))
        chat = c.c_void_p()
        with session._pointer() as p:
            call(lib.moe_chat_create, p, c.byref(params), c.byref(chat))
            assert chat.value is not None
            self._parent = session._open()
            self._native = Native(chat.value, lib.moe_chat_free, self._parent)

    def _describe(self) -> str:
        with self._pointer() as chat:
            n = int(lib.moe_chat_message_count(chat))
            return f"{n} message{'s' * (n != 1)} in {self.session!r}"

    def close(self) -> None:
        """Ends a reply in progress; see Closable.close. The session stays open."""
        if self._native is not None:
            for reply in list(self._replies):
                reply.close()
        super().close()

    def _begun(self, reply: Generation) -> None:
        self._replies.add(reply)
        self.session._begun(reply)

    @property
    def session(self) -> Session:
        """It can be set to another session of the same model, for example one with a larger context;
        the next reply evaluates what that one does not contain yet."""
        return self._session

    @session.setter
    def session(self, session: Session) -> None:
        with self._pointer() as chat, session._pointer() as p:
            call(lib.moe_chat_set_session, chat, p)
            self._parent = session._open()
            self._open().adopt(self._parent)
        self._session = session

    @property
    def messages(self) -> list[Message]:
        """The conversation, without the system text. Set it from Messages or from mappings with
        "role" and "content"; what the session holds is used again where it is the same."""
        with self._pointer() as chat:
            return [_message(chat, i) for i in range(lib.moe_chat_message_count(chat))]

    @messages.setter
    def messages(self, messages: Iterable[Message | Mapping[str, str]]) -> None:
        self._replace(messages)

    def _replace(self, messages: Iterable[Message | Mapping[str, str]]) -> None:
        fresh = [m if isinstance(m, Message) else Message(m["role"], m["content"])
                 for m in messages]
        for m in fresh:
            if not m.role:
                raise ArgumentError("messages: a message without a role")
        n_before = len(self.messages)
        try:  # behind those that are there, which stay when one cannot be added
            self._add_all(fresh)
        finally:
            self.truncate(n_before)
        self.truncate(0)
        self._add_all(fresh)

    def _add_all(self, messages: Iterable[Message]) -> None:
        for m in messages:
            if m.members:
                self.add_message({"role": m.role, "content": m.content or None, **m.members})
            else:
                self.add(m.role, m.content)

    @property
    def system(self) -> str | None:
        """The system text; it can be set, also to None."""
        return self._system

    @system.setter
    def system(self, text: str | None) -> None:
        with self._pointer() as chat:
            call(lib.moe_chat_set_system, chat, optional_bytes(text))
        self._system = text

    def add(self, role: str, content: str) -> None:
        """Appends a message."""
        with self._pointer() as chat:
            _add(chat, role, content)

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Appends a message with calls of tools, or the result of one, as OpenAI's chat completions
        have them: {"role": "tool", "tool_call_id": ..., "content": ...}. The template gets all
        members."""
        data = json.dumps(dict(message), ensure_ascii=False).encode("utf-8", "surrogatepass")
        with self._pointer() as chat:
            call(lib.moe_chat_add_message, chat, data, len(data))

    def set_tools(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Gives the model tools that it may call, as OpenAI's chat completions have them: [{"type":
        "function", "function": {"name": ..., "description": ..., "parameters": {a JSON schema}}}].
        Calls in later replies are pieces with Piece.tool_call, and members of the reply's message.
        An empty list: none. With "strict": True in a function, calls are held to a form while they
        are generated: the arguments of such a tool satisfy its parameters. UnsupportedError if the
        template has no tools, or asks for calls in no format that is known (tool_format), or for a
        schema that arguments cannot be held to."""
        data = json.dumps(list(tools), ensure_ascii=False).encode("utf-8", "surrogatepass")
        with self._pointer() as chat:
            call(lib.moe_chat_set_tools, chat, data, len(data))

    def set_tool_choice(self, choice: str, name: str | None = None) -> None:
        """Chooses whether later replies call tools: "auto", "required" (calls and no text), "one" (a
        single call). name: of the tool, if one must be called."""
        kinds = {"auto": ToolChoice.AUTO, "required": ToolChoice.REQUIRED, "one": ToolChoice.ONE}
        if choice not in kinds:
            raise ValueError(f"choice: expected auto, required or one, found {choice!r}")
        with self._pointer() as chat:
            call(lib.moe_chat_set_tool_choice, chat, kinds[choice], optional_bytes(name))

    @property
    def tool_format(self) -> str | None:
        """The format in which the template asks for calls of tools, such as "hermes"; None: none
        that is known."""
        with self._pointer() as chat:
            return text_of(lib.moe_chat_tool_format(chat)) or None

    def truncate(self, n_messages: int) -> None:
        """Removes all but the first messages."""
        if n_messages < 0:
            raise ArgumentError(f"n_messages: expected at least 0, found {n_messages}")
        n = integer(n_messages, "n_messages", c.c_size_t)
        with self._pointer() as chat:
            call(lib.moe_chat_truncate, chat, n)

    def remove_oldest(self, max_tokens: int) -> int:
        """Removes the oldest turns, as few as possible, until the conversation with the beginning of
        a reply has at most max_tokens tokens; the number of messages. A turn is a message with the
        role "user" and those up to the next one. The system text, messages before the first turn and
        the last turn remain; TooLongError if these alone have more tokens. The next reply
        evaluates what is left."""
        removed = c.c_size_t()
        n = integer(max_tokens, "max_tokens", c.c_size_t)
        with self._pointer() as chat:
            call(lib.moe_chat_remove_oldest, chat, n, c.byref(removed))
        return removed.value

    def clear(self) -> None:
        """Removes all messages; the system text remains."""
        self.truncate(0)

    def render(self, begin_reply: bool = False) -> str:
        """The conversation as the model reads it, special tokens spelled out; begin_reply: with
        the start of the next reply. TextError if the template rejects the conversation."""
        n = c.c_size_t()
        with self._pointer() as chat:
            call(lib.moe_chat_render, chat, begin_reply, None, 0, c.byref(n))
            text = c.create_string_buffer(n.value + 1)
            call(lib.moe_chat_render, chat, begin_reply, text, n.value + 1, c.byref(n))
        return text.raw[: n.value].decode("utf-8", "replace")

    def tokens(self, begin_reply: bool = False) -> list[int]:
        """The same as token ids."""
        n = c.c_size_t()
        with self._pointer() as chat:
            call(lib.moe_chat_tokens, chat, begin_reply, None, 0, c.byref(n))
            ids = np.empty(n.value, np.int32)
            call(lib.moe_chat_tokens, chat, begin_reply, address(ids), len(ids), c.byref(n))
        return [int(i) for i in ids[: n.value]]

    def _raise_watched(self) -> None:
        self.session._raise_watched()

    def cancel(self) -> None:
        """Makes a reply in progress raise CancelledError. Any thread."""
        with self._pointer():
            session = self._parent
            session.hold()  # the chat may get another one meanwhile
            lib.moe_session_cancel(session.pointer)
            session.release()

    def reply(self, message: str | None = None, *, max_tokens: int = 0, stop: str | Sequence[str] = (),
              ignore_eos: bool = False, logprobs: int = 0, max_draft: int = 0,
              logits_processor: LogitsProcessor | None = None, grammar: Grammar | None = None,
              json_schema: Schema | None = None, regex: str | None = None,
              **sampling: Unpack[SamplingArguments]) -> Reply:
        """Adds the user's message, if given, and generates the reply piece by piece as the result is
        iterated. The other arguments are those of Session.generate(), with its defaults: the most
        probable token each time, so that a program gives the same reply each time. Model.sampling
        has what `moe chat` uses. TooLongError if the conversation fills the context;
        remove_oldest() makes room."""
        request = Request(token_array(()), Sampling(**sampling), max_tokens, stop_texts(stop), ignore_eos,
                          logprobs, max_draft, message, grammar_of(self.session.model, grammar, json_schema, regex))
        return Reply(self, request, logits_processor)

    def create_chat_completion(self, messages: Iterable[Mapping[str, Any]], *, stream: bool = False,
                               logprobs: bool = False, top_logprobs: int | None = None,
                               logit_bias: Mapping[Any, float] | None = None,
                               model: str | None = None, **sampling: Any) -> Any:
        """See Model.create_chat_completion(). `messages` replace those of the chat; what the session
        holds of them is not evaluated again."""
        return complete(self, messages, stream, logprobs, top_logprobs, logit_bias, lambda: None,
                        model, sampling)


def _variable(value: Variable) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _add(chat: int, role: str, content: str) -> None:
    data = text_bytes(content, "surrogateescape")
    call(lib.moe_chat_add, chat, optional_bytes(role), data, len(data))


def _message(chat: int, index: int) -> Message:
    m = s.ChatMessage()
    call(lib.moe_chat_get_message, chat, index, c.byref(m))

    def text(pointer: int | None, n: int) -> str:
        return c.string_at(pointer or 0, n).decode("utf-8", "replace") if n else ""

    return Message(text_of(m.role), text(m.content, m.n_bytes),
                   text(m.thinking, m.n_thinking_bytes), json.loads(text_of(m.members) or "{}"))
