# SPDX-License-Identifier: MIT
"""Encoder-decoders: reading a source, and making texts of it by beam search."""

from __future__ import annotations

import contextlib
import ctypes as c
from typing import NamedTuple

import numpy as np

from . import _structs as s
from ._arrays import FloatArray, Tokens, address, int32, token_array
from ._constants import BeamScore, BeamStop
from ._library import call, lib
from ._long_call import Progress, progress_callback
from ._session_calls import SessionCalls
from .errors import UnsupportedError


class Translation(NamedTuple):
    """One result of Session.translate()."""

    text: str | None  # without special tokens; None: the model has no tokenizer
    score: float  # sum of log-probabilities / len(tokens) ** length_penalty
    tokens: list[int]  # with the end-of-text token


class Translating(SessionCalls):
    """Part of Session."""

    def translate(self, source: str | Tokens, *, beam: int = 0, n_best: int = 1,
                  min_tokens: int = 1, max_tokens: int = 0, length_penalty: float = 1.0,
                  stop: str = "count", prefix: str | Tokens = (),
                  progress: Progress | None = None) -> list[Translation]:
        """The `n_best` best texts that an encoder-decoder makes of a source, best first, by beam
        search. The session has then read the source, and is empty.

        beam:   0: 5, or the session's max_beam where that is less; 1 is greedy.
        max_tokens: 0: 256, or what the context leaves.
        stop:   "count": once `beam` texts have ended; "step": the same at the end of the step, and
                the best are kept (early_stopping=True of transformers 5); "bound": once no text can
                become better than those that ended (early_stopping=False).
        prefix: what every text begins with, such as the token of a language; a str may spell
                special tokens. Empty: what the model file says.
        progress(done, total) is called before each token; when it returns False, CancelledError is
        raised, and an exception in it comes out here.
        """
        ids = token_array(self.model.encode(source) if isinstance(source, str) else source)
        begin = token_array(self.model.encode(prefix, special=False, parse_special=True)
                            if isinstance(prefix, str) else prefix)
        n_texts = c.c_size_t()
        with self._long_call() as long:
            params = s.TranslateParams(
                beam=int32(beam, "beam"), n_best=int32(n_best, "n_best"),
                min_tokens=int32(min_tokens, "min_tokens") or -1,
                max_tokens=int32(max_tokens, "max_tokens"), length_penalty=length_penalty,
                score=BeamScore.POWER if length_penalty else BeamScore.SUM, stop=BeamStop.of(stop, "stop"),
                prefix=address(begin), n_prefix=len(begin),
                progress=progress_callback(long, progress))

            def run() -> None:
                with self._pointer() as session:
                    call(lib.moe_session_translate, session, address(ids), len(ids),
                         c.byref(params), c.byref(n_texts))

            long.run(run)
            return [self._translation(i) for i in range(n_texts.value)]

    def _translation(self, index: int) -> Translation:
        found = s.Translation()
        with self._pointer() as session:
            call(lib.moe_session_get_translation, session, index, c.byref(found))
        tokens = found.tokens[:found.n_tokens]
        with contextlib.suppress(UnsupportedError):
            return Translation(self.model.tokenizer.decode(tokens, skip_special=True), found.score, tokens)
        return Translation(None, found.score, tokens)

    def read_source(self, source: str | Tokens) -> FloatArray:
        """Makes an encoder-decoder's session one of a decoder, whose text sees the source: empty,
        to be given model.info.start_token first. score() then gives the probability of a
        translation, generate() draws one. Returns the encoder's output, (len(tokens), d_model)."""
        ids = token_array(self.model.encode(source) if isinstance(source, str) else source)
        hidden = np.empty((len(ids), self.model.info.d_model), np.float32)

        def run() -> None:
            with self._pointer() as session:
                call(lib.moe_session_read_source, session, address(ids), len(ids), address(hidden))

        with self._long_call() as long:
            long.run(run)
        return hidden
