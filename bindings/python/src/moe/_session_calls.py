# SPDX-License-Identifier: MIT
"""Helpers of every call on a session."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any
from collections.abc import Iterator

from . import _structs as s
from ._handle import Closable, Raised
from ._library import call, lib
from ._long_call import LongCall
from .routing import Watcher, show_choices

if TYPE_CHECKING:
    from .model import Model


class SessionCalls(Closable):
    """The session's pointer for a call, and what ends a call before its time."""

    _what = "session"

    def __init__(self, model: Model) -> None:
        self.model = model
        self._watcher: Any = None
        self._raised = Raised()  # by the watcher

    @contextlib.contextmanager
    def _pointer(self) -> Iterator[int]:
        """For one call, out of which an exception of the watcher comes: the call that it was raised
        in, not one that another thread makes meanwhile."""
        with super()._pointer() as pointer:
            try:
                yield pointer
            finally:
                if self._raised.thread == threading.get_ident():
                    self._raise_watched()

    def _raise_watched(self) -> None:
        self._raised.call(lambda: None)

    @contextlib.contextmanager
    def _long_call(self) -> Iterator[LongCall]:
        """A call of this session that a signal can end."""
        with self._pointer() as session:
            yield LongCall(lambda: lib.moe_session_cancel(session))

    def cancel(self) -> None:
        """Makes the call in progress on this session raise CancelledError within one layer's time.
        Any thread; without a call in progress it does nothing."""
        with super()._pointer() as session:
            lib.moe_session_cancel(session)

    def watch_routing(self, watcher: Watcher | None) -> None:
        """Has watcher(choices) called with the RoutingChoices of each MoE layer, before they are
        used, in whatever thread computes; None: no longer. It must not use the session. What it
        raises ends the call, and comes out of it. UnsupportedError on a GPU."""
        raised = Raised()
        callback = s.RoutingFn(0) if watcher is None else self._routing_callback(watcher, raised)
        with super()._pointer() as session:
            call(lib.moe_session_watch_routing, session, callback, None)
        self._watcher, self._raised = callback, raised

    def _routing_callback(self, watcher: Watcher, raised: Raised) -> Any:
        def watch(_user: Any, choices: Any) -> bool:
            raised.guard(show_choices)(watcher, choices.contents)
            return raised.exception is None

        return s.RoutingFn(watch)
