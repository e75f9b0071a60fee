# SPDX-License-Identifier: MIT
"""Many requests at once, in the shapes of OpenAI's and Anthropic's APIs: libmoe_serve."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes as c
import dataclasses
import itertools
import json
import os
import queue
import threading
import time
import weakref
from typing import Any, Union
from collections.abc import Callable, Iterator, Mapping

from . import _structs as s
from ._arrays import int32
from ._asynchronous import Asynchronous
from ._constants import Endpoint, KvType, Status
from ._handle import Closable, Native, optional_bytes, path_bytes, text_bytes
from ._library import call, serve_library
from ._long_call import LongCall
from ._router import parse_router
from .errors import ArgumentError, MoeError, StateError
from .info import plain

# A request as a mapping, or as the bytes or the text of its JSON.
RequestBody = Union[Mapping[str, Any], str, bytes]

_PATHS = {
    "/v1/chat/completions": Endpoint.CHAT,
    "/v1/completions": Endpoint.COMPLETIONS,
    "/v1/embeddings": Endpoint.EMBEDDINGS,
    "/v1/rerank": Endpoint.RERANK,
    "/v1/messages": Endpoint.MESSAGES,
    "/v1/messages/count_tokens": Endpoint.COUNT_TOKENS,
    "/v1/responses": Endpoint.RESPONSES,
    "/tokenize": Endpoint.TOKENIZE,
    "/statistics": Endpoint.STATISTICS,
}


# The status of the library that is nearest to one of HTTP; of others ERR_INTERNAL.
_STATUS = {400: Status.ERR_ARGUMENT, 404: Status.ERR_NOT_FOUND, 429: Status.ERR_STATE, 499: Status.ERR_CANCELLED,
           503: Status.ERR_STATE, 504: Status.ERR_CANCELLED}


class RequestError(MoeError):
    """A request that was refused or failed. `code` is the status of HTTP, `body` the error as the endpoint's
    API has it, `retry_after` the seconds after which the request may be tried again, 0: not said."""

    def __init__(self, code: int, body: dict[str, Any], retry_after: int) -> None:
        error = body.get("error")
        super().__init__(str(error.get("message")) if isinstance(error, dict) else json.dumps(body))
        self.status = _STATUS.get(code, Status.ERR_INTERNAL)
        self.code = code
        self.body = body
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


@dataclasses.dataclass(frozen=True)
class Event:
    """A part of an answer, or the whole."""

    status: int  # of HTTP: 200, or that of the error in `json`
    json: str  # an object in one line
    last: bool  # the last one of its answer
    retry_after: int  # seconds after which the request may be tried again; 0: not said
    name: str  # of an event of a stream, for the line "event: NAME"; "": it has none

    @property
    def value(self) -> dict[str, Any]:
        """The object."""
        value: dict[str, Any] = json.loads(self.json)
        return value


@dataclasses.dataclass(frozen=True)
class ServiceStats:
    """Counts of a service since it was created, and its state; moe_service_stats in moe_c.h says what
    each is."""

    n_slots: int
    context: int
    n_running: int
    n_waiting: int
    draining: int
    kv_positions: int
    n_requests: int
    n_refused: int
    n_answered: int
    n_cancelled: int
    n_failed: int
    prompt_tokens: int
    generated_tokens: int
    n_steps: int
    n_first_tokens: int
    first_token_seconds: float
    step_seconds: float
    cap_bytes: int
    counted_bytes: int
    peak_bytes: int
    expert_uses: int
    expert_hits: int
    expert_read_bytes: int
    reused_tokens: int
    cache_bytes: int
    cache_errors: int


class _Events:
    """The events of a request, which the library's thread puts there."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.wake: Callable[[], object] | None = None  # called behind each

    def put(self, event: Event) -> None:
        self.queue.put(event)
        wake = self.wake
        if wake is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                wake()


# Those of the requests in progress, by a number that the library gives back. The library does not use it after
# the last event.
_events: dict[int, _Events] = {}
_numbers = itertools.count(1)
_service_thread = threading.local()  # `is_one` is set in threads of the library that call back
_services: weakref.WeakSet[Service] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """The library's threads may not call back once the interpreter is gone."""
    for service in list(_services):
        service.close()


def _take(user: int, event: Any) -> None:
    _service_thread.is_one = True
    e = event.contents
    told = Event(e.status, c.string_at(e.json, e.n_bytes).decode("utf-8", "replace"), bool(e.last), e.retry_after,
                 (e.name or b"").decode())
    events = _events.pop(user, None) if told.last else _events.get(user)
    if events is not None:  # submit() was not interrupted
        events.put(told)


_on_event = s.ServiceEventFn(_take)


def _free(pointer: int) -> None:
    """A garbage collection may drop a service in one of its own threads, which cannot wait for itself."""
    free = serve_library().moe_service_free
    if getattr(_service_thread, "is_one", False):
        threading.Thread(target=free, args=(pointer,), name="moe.service.free").start()
    else:
        free(pointer)


class Answer(Asynchronous[Event]):
    """An iterator over the events of one request, also for `async for`; the last one has `last` set. Dropping it,
    or close(), cancels the request."""

    def __init__(self, service: Service, events: _Events, id_: int, streamed: bool) -> None:
        self._service = service
        self._events = events
        self._id = id_
        self._ended = False
        self.streamed = streamed  # whether the request asks for a stream; also False when it was refused

    def __next__(self) -> Event:
        if self._ended:
            raise StopIteration
        event = self._events.queue.get()
        self._ended = event.last
        return event

    async def __anext__(self) -> Event:
        """No thread waits, so that a loop can await any number of answers."""
        loop = asyncio.get_running_loop()
        while not self._ended:
            arrived = asyncio.Event()
            self._events.wake = lambda: loop.call_soon_threadsafe(arrived.set)
            try:
                event = self._events.queue.get_nowait()
            except queue.Empty:
                try:
                    await arrived.wait()
                except asyncio.CancelledError:
                    self.close()
                    raise
            else:
                self._ended = event.last
                return event
        raise StopAsyncIteration

    def close(self) -> None:
        """Ends the request within a step, and the iteration."""
        if not self._ended:
            self._ended = True
            self._service._cancel(self._id)

    def cancel(self) -> None:
        """Ends the request within a step: its last event has the status 499."""
        if not self._ended:
            self._service._cancel(self._id)

    def __del__(self) -> None:
        self.close()


class Service(Closable):
    """Answers many requests at the same time with one model, which it keeps open; for any number of threads.
    `moe serve` speaks HTTP around the same library, and so can a program with a web server of its own. Requests
    and answers are those of docs/serving.md. An answer depends on its request and its seed alone.

    slots:          texts evaluated at the same time, at most 1024; 0: 8, or under a cap of the model fewer
    context, chunk, kv: of each text's session, as for Model.session
    router:         in place of the model's, "topk:2"
    name:           of the model, in requests and answers; None: the model file's
    chat_template:  the text of a template or a name, as for Model.chat
    max_waiting:    texts that wait for a slot; 0: 64
    max_prompt:     tokens; 0: all but one of the context
    slice_tokens:   prompt tokens evaluated in a step while texts are being generated; 0: 16
    max_seconds:    of a request; 0: any
    draft:          tokens drafted at once for a text that is alone, where its request does not say; at most 16
    reuse:          prompts take over what they have in common with other texts, to the same bits
    cache_folder:   keeps evaluated texts in files over a restart; it must be trusted
    cache_bytes:    of these files, the most; 0: 10 GB
    receipt:        gets the receipt of every answer, a dict, in a thread of the service, which waits for it. It
                    may not use the service
    """

    _what = "service"

    def __init__(self, model: Any, *, slots: int = 0, context: int = 0, chunk: int = 0,
                 kv: KvType | str = KvType.DEFAULT, router: str | None = None, name: str | None = None,
                 chat_template: str | None = None, max_waiting: int = 0, max_prompt: int = 0, slice_tokens: int = 0,
                 max_seconds: int = 0, draft: int = 0, reuse: bool = True, cache_folder: str | os.PathLike[str] | None = None,
                 cache_bytes: int = 0, receipt: Callable[[dict[str, Any]], object] | None = None) -> None:
        session = s.SessionParams(context=context, chunk=chunk, kv=KvType.of(kv, "kv"))
        params = s.ServiceParams(
            n_slots=int32(slots, "slots"), session=c.pointer(session), name=optional_bytes(name),
            chat_template=optional_bytes(chat_template), max_waiting=int32(max_waiting, "max_waiting"),
            max_prompt=int32(max_prompt, "max_prompt"), slice=int32(slice_tokens, "slice_tokens"),
            max_seconds=int32(max_seconds, "max_seconds"), max_draft=int32(draft, "draft"), no_reuse=int(not reuse), cache_bytes=cache_bytes,
            cache_folder=None if cache_folder is None else path_bytes(cache_folder, "cache_folder"))
        if router is not None:
            params.router = c.pointer(parse_router(router))
        if receipt is not None:
            params.receipt = _receipt_callback(receipt)
        service = c.c_void_p()
        library = serve_library()
        with model._pointer() as m:
            call(library.moe_service_create, m, c.byref(params), c.byref(service))
            assert service.value is not None
            self._native = Native(service.value, _free, model._open(), keep=params)
        _services.add(self)

    def submit(self, endpoint: Endpoint | str, request: RequestBody) -> Answer:
        """Takes a request and returns the iterator of its events at once. A request that is refused has one
        event, whose status says so. endpoint: a member of Endpoint, its name in small letters ("chat"), or the
        path of HTTP ("/v1/chat/completions")."""
        path = _PATHS.get(endpoint) if isinstance(endpoint, str) else None
        which = Endpoint.of(endpoint, "endpoint") if path is None else path
        if isinstance(request, Mapping):
            request = json.dumps(request, ensure_ascii=False)
        if not isinstance(request, (str, bytes)):
            raise TypeError(f"request: expected a mapping, str or bytes, found {type(request).__name__}")
        body = text_bytes(request) if isinstance(request, str) else request
        events = _Events()
        number = next(_numbers)
        ticket = s.ServiceTicket()
        _events[number] = events
        try:
            with self._pointer() as service:
                call(serve_library().moe_service_submit, service, which, body, len(body), _on_event, number,
                     c.byref(ticket))
        except BaseException:
            _events.pop(number, None)
            if ticket.id:  # a signal's handler raised behind the call
                self._cancel(ticket.id)
            raise
        finally:
            _service_thread.is_one = False  # the answer may have been given by this thread
        return Answer(self, events, ticket.id, bool(ticket.stream))

    def answer(self, endpoint: Endpoint | str, request: RequestBody) -> dict[str, Any]:
        """Waits for the whole answer, an object of the endpoint's API. RequestError for one that is refused or
        fails; ArgumentError for a request of a stream."""
        answer = self.submit(endpoint, request)
        if answer.streamed:
            answer.close()
            raise ArgumentError('the request asks for a stream ("stream": true); use stream() or submit()')
        return _value(next(answer))

    def stream(self, endpoint: Endpoint | str, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The objects of a streamed answer, as they come; "stream": true is added to the request. RequestError
        for one that is refused or fails. Dropping the iterator cancels the request."""
        answer = self.submit(endpoint, {**request, "stream": True})

        def objects() -> Iterator[dict[str, Any]]:
            try:
                for event in answer:
                    yield _value(event)
            finally:
                answer.close()

        return objects()

    def stats(self) -> ServiceStats:
        stats = s.ServiceStats()
        with self._pointer() as service:
            call(serve_library().moe_service_get_stats, service, c.byref(stats))
        return plain(ServiceStats, stats)

    def drain(self, seconds: float | None = None) -> bool:
        """From now on requests are refused; waits until those taken have ended, at most `seconds` (None: any
        time). Whether they have."""
        empty = c.c_bool()
        stop = threading.Event()
        end = None if seconds is None else time.monotonic() + max(seconds, 0.0)

        def drain() -> None:
            left = 0.0
            while not stop.is_set():
                call(serve_library().moe_service_drain, service, min(left, 0.1), c.byref(empty))
                left = 0.1 if end is None else end - time.monotonic()
                if empty.value or left <= 0:
                    return

        with self._pointer() as service:
            LongCall(stop.set).run(drain)
        return empty.value

    def _cancel(self, id_: int) -> None:
        try:
            with self._pointer() as service:
                serve_library().moe_service_cancel(service, id_)
        except StateError:  # it is closed, which ended all requests
            pass

    def _describe(self) -> str:
        stats = self.stats()
        return f"{stats.n_running} running, {stats.n_waiting} waiting, {stats.n_slots} slots"


def _value(event: Event) -> dict[str, Any]:
    if event.status != 200:
        raise RequestError(event.status, event.value, event.retry_after)
    return event.value


def _receipt_callback(receipt: Callable[[dict[str, Any]], object]) -> Any:
    def give(_user: Any, text: int, n_bytes: int) -> None:
        _service_thread.is_one = True
        receipt(json.loads(c.string_at(text, n_bytes)))

    return s.ServiceReceiptFn(give)
