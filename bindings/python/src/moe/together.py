# SPDX-License-Identifier: MIT
"""Several sessions of one model in a single pass."""

from __future__ import annotations

import contextlib
import ctypes as c
from typing import TYPE_CHECKING, Any
from collections.abc import Sequence

import numpy as np

from ._arrays import FloatArray, Tokens, address, token_array
from ._library import call, lib
from ._long_call import is_short
from .errors import ArgumentError

if TYPE_CHECKING:
    from .session import Session


def step(sessions: Sequence[Session], tokens: Tokens) -> FloatArray:
    """Appends one token to each of several different sessions of one model in a single pass, and
    returns their logits: (n, vocab_size). Each gets exactly what eval() alone would give it. On
    failure none has moved."""
    ids = token_array(tokens)
    if len(ids) != len(sessions):
        raise ArgumentError(f"tokens: expected one for each of {len(sessions)} sessions, "
                            f"found {len(ids)}")
    logits = _rows(sessions)
    _together(sessions, ids, None, logits)
    return logits


def append_each(sessions: Sequence[Session], tokens: Tokens) -> None:
    """step() without the logits, which Session.sample() does not need."""
    _together(sessions, token_array(tokens), None, None)


def eval_each(sessions: Sequence[Session], pieces: Sequence[Tokens]) -> FloatArray:
    """step() with several tokens for some sessions: slices of long texts beside texts that are
    continued token by token. A pass has at most as many tokens as the first session's chunk; more
    take several. Returns the logits after the last token of each piece."""
    ids = [token_array(piece) for piece in pieces]
    if len(ids) != len(sessions):
        raise ArgumentError(f"pieces: expected one for each of {len(sessions)} sessions, "
                            f"found {len(ids)}")
    logits = _rows(sessions)
    _together(sessions, np.concatenate(ids or [token_array([])]), [len(i) for i in ids], logits)
    return logits


def _rows(sessions: Sequence[Session]) -> FloatArray:
    return np.empty((len(sessions), sessions[0]._vocab_size if sessions else 0), np.float32)


def _together(sessions: Sequence[Session], ids: Any, n_tokens: list[int] | None,
              logits: FloatArray | None) -> None:
    def advance() -> None:
        with contextlib.ExitStack() as stack:
            pointers = [stack.enter_context(session._pointer()) for session in sessions]
            array = (c.c_void_p * len(pointers))(*pointers)
            n, out = len(pointers), address(logits)
            counts = None if n_tokens is None else (c.c_size_t * n)(*n_tokens)
            call(lib.moe_sessions_eval, array, address(ids), counts, n, out)

    if not sessions or is_short(len(ids), sessions[0]._n_active):
        advance()
    else:
        with sessions[0]._long_call() as long:
            long.run(advance)
