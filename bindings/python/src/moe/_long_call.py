# SPDX-License-Identifier: MIT
"""Long calls that Ctrl-C and other signals can end.

Python runs signal handlers in the main thread alone, and not before C has returned there. So a long
call from the main thread is made by another one, while the main thread waits, runs signal handlers
and the caller's callbacks. When one of them raises, the call is stopped and the exception goes to
the caller. From any other thread the call is made at once: no signal arrives there.
"""

from __future__ import annotations

import _thread
import queue
import threading
from typing import Any
from collections.abc import Callable

from . import _structs as s
from ._handle import Raised

Progress = Callable[[int, int], Any]

# Rows times parameters. A call below it ends within a fraction of a second on the slowest machine,
# and is too short to be worth a thread.
_SHORT = 100_000_000


def is_short(n_rows: int, n_parameters: int) -> bool:
    return n_rows * n_parameters < _SHORT


class LongCall:
    """One call; guard() its callbacks first, then run() it once.

    cancel: ends the call, as soon as it can, from any thread. It is called until the call has
            ended, because one that has only just begun may not hear it. Without it the call must
            have a callback that ends it: see going_on().
    """

    def __init__(self, cancel: Callable[[], object] = lambda: None) -> None:
        self._cancel = cancel
        self._direct = threading.current_thread() is not threading.main_thread()
        self._raised = Raised()
        self._lock = threading.Lock()  # over the next two
        self._begun = False
        self._stopped = False
        self._done = False
        self._error: BaseException | None = None
        # The other thread's request, and its news; _wake says only that there may be any, so that
        # nothing is lost when an exception comes just as it was taken.
        self._request: tuple[Callable[..., Any], tuple[Any, ...]] | None = None
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def going_on(self) -> bool:
        """For callbacks that can end the call: False once it shall."""
        return not self._stopped and self._raised.exception is None

    def guard(self, function: Callable[..., Any], failed: Any = None) -> Callable[..., Any]:
        """The caller's callback, for C: runs in the caller's thread and returns `failed` once
        anything was raised."""
        if self._direct:
            return self._raised.guard(function, failed)

        def ask(*arguments: Any) -> Any:
            if self._stopped:
                return failed
            self._request = function, arguments
            self._wake.put(None)
            answer = self._answers.get()
            return failed if self._stopped else answer

        return ask

    def run(self, function: Callable[[], None]) -> None:
        """Calls it. It must itself hold whatever it uses. What a callback or a signal handler
        raised takes precedence over its error."""
        if self._direct:
            self._raised.call(function)
            return
        try:
            _thread.start_new_thread(self._work, (function,))
            self._serve()
        except BaseException:
            self._stop()
            raise
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    def _work(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._stopped:
                return
            self._begun = True
        try:
            function()
        except BaseException as e:
            self._error = e
        self._done = True
        self._wake.put(None)

    def _wait(self) -> None:
        try:
            self._wake.get(timeout=0.05)
        except queue.Empty:
            pass

    def _serve(self) -> None:
        while not self._done:
            self._wait()
            request, self._request = self._request, None
            if request is not None:
                function, arguments = request
                self._answers.put(function(*arguments))

    def _stop(self) -> None:
        told = False
        while not told or (self._begun and not self._done):
            try:
                if not told:
                    with self._lock:  # from here on the call has begun, or never will
                        self._stopped = True
                    self._answers.put(None)
                    told = True
                else:
                    self._cancel()
                    self._wait()
            except BaseException:  # another Ctrl-C: the call is ending already
                pass


def progress_callback(long: LongCall, progress: Progress | None) -> Any:
    """A moe_progress_fn; whatever `progress` returns but False means to go on."""
    if progress is None:
        return s.ProgressFn(lambda _user, _done, _total, _what: long.going_on())
    function = progress
    return s.ProgressFn(long.guard(
        lambda _user, done, total, _what: function(done, total) is not False, False))
