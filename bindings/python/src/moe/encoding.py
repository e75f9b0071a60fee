# SPDX-License-Identifier: MIT
"""Texts as vectors, and what an encoder says about their tokens."""

from __future__ import annotations

import ctypes as c
from typing import NamedTuple
from collections.abc import Sequence

import numpy as np

from . import _structs as s
from ._arrays import FloatArray, Tokens, address, token_array
from ._constants import Normalize, Pooling
from ._library import call, lib
from ._session_calls import SessionCalls
from ._sized import integer
from .errors import ArgumentError, TooLongError, UnsupportedError
from .sampling import TokenLogprob

_NORMALIZE = {None: Normalize.DEFAULT, True: Normalize.ON, False: Normalize.OFF}


class Encoded(NamedTuple):
    """Results of Session.encode(); None if not requested."""

    hidden: FloatArray | None
    pooled: FloatArray | None
    outputs: FloatArray | None


class Ranked(NamedTuple):
    """A text that Session.rerank() scored: its place in what was given, and its score."""

    place: int
    score: float


class Encoding(SessionCalls):
    """Part of Session."""

    def encode(self, tokens: Tokens, *, hidden: bool = True, pooling: str | None = None,
               outputs: bool = False, rows: Tokens | None = None,
               normalize: bool | None = False, second: int = 0) -> Encoded:
        """Runs the model over a text without changing the session. A token of an encoder
        sees the whole text, one of a decoder what is in front of it: the text's own tokens and what
        the session holds. Do not pad: pass one text at a time.

        hidden:  return the hidden states after the final norm, (len(tokens), d_model).
        pooling: "mean", "first" or "last": return one vector of the text, (d_model,); "default": as
                 the model file says, the mean if it says nothing.
        normalize: give that vector the length 1; None: as the model file says.
        outputs: return the outputs of an encoder's head, (len(tokens), n_outputs); "classes":
                 (1, n_outputs).
        rows:    ascending numbers of the tokens whose outputs to return; None: of all.
        second:  the first token of a second text (Tokenizer.encode_pair); 0: there is none.
        """
        pooled_by = Pooling.MEAN if pooling is None else Pooling.of(pooling, "pooling")
        if normalize not in _NORMALIZE:
            raise ArgumentError(f"normalize: expected True, False or None, found {normalize!r}")
        info, ids = self.model.info, token_array(tokens)
        wanted = None if rows is None else token_array(rows)
        n = 1 if info.head == "classes" else len(ids)
        n = n if wanted is None else len(wanted)
        states = np.empty((len(ids), info.d_model), np.float32) if hidden else None
        pooled = np.empty(info.d_model, np.float32) if pooling is not None else None
        out = np.empty((n, info.n_outputs), np.float32) if outputs else None
        params = s.EncodeParams(pooling=pooled_by, hidden=address(states),
                                pooled=address(pooled), outputs=address(out),
                                rows=address(wanted), n_rows=n, normalize=_NORMALIZE[normalize],
                                second=integer(second, "second", c.c_size_t))

        def run() -> None:
            with self._pointer() as session:
                call(lib.moe_session_encode, session, address(ids), len(ids), c.byref(params))

        with self._long_call() as long:
            long.run(run)
        return Encoded(states, pooled, out)

    def embed(self, texts: str | Sequence[str], pooling: str = "default",
              normalize: bool | None = None, prompt: str | None = None) -> FloatArray:
        """One vector of a text, (d_model,), or one for each of several, (n, d_model). ArgumentError
        for an empty text, TooLongError for one of more tokens than ModelInfo.vector_tokens.

        pooling, normalize: see encode(); by default as the model file says.
        prompt: name of the prompt (Model.prompts) to put before each text; None: the model's
                default, if it has one; "": none.
        """
        before = self._prompt(prompt)
        if isinstance(texts, str):
            return self._embed(texts, "texts", before, pooling, normalize)
        rows = [self._embed(text, f"texts[{i}]", before, pooling, normalize)
                for i, text in enumerate(texts)]
        return np.stack(rows) if rows else np.empty((0, self.model.info.d_model), np.float32)

    def _prompt(self, name: str | None) -> str:
        prompts, chosen = self.model.prompts, self.model.info.default_prompt
        if name == "" or (name is None and chosen < 0):
            return ""
        if name is None:
            return list(prompts.values())[chosen]
        if name not in prompts:
            raise ArgumentError(f"prompt: expected one of {list(prompts)}, found {name!r}")
        return prompts[name]

    def _embed(self, text: str, name: str, before: str, pooling: str,
               normalize: bool | None) -> FloatArray:
        if text == "":
            raise ArgumentError(f"{name}: expected a text, found an empty one")
        tokens, most = self.model.encode(before + text), self.model.info.vector_tokens
        if 0 < most < len(tokens):
            raise TooLongError(f"{name}: {len(tokens)} tokens, the model's vectors are of texts of at "
                               f"most {most}")
        pooled = self.encode(tokens, hidden=False, pooling=pooling, normalize=normalize).pooled
        assert pooled is not None
        return pooled

    def score_pairs(self, query: str, texts: Sequence[str]) -> FloatArray:
        """The outputs of the head of classes for the query with each of the texts, (n, n_outputs),
        such as a cross-encoder's scores of passages. Of a pair that is longer than the session's
        context, or chunk, the ends are left out, those of the longer text first. UnsupportedError for a model without such
        a head."""
        info = self.model.info
        if not info.is_encoder or info.head != "classes":
            raise UnsupportedError("score_pairs needs an encoder with a head of classes, found "
                                   + (f"a head of {info.head}" if info.is_encoder else "a decoder"))
        rows = np.empty((len(texts), info.n_outputs), np.float32)
        with self._pointer() as session:
            most = int(lib.moe_session_context(session))
        for i, text in enumerate(texts):
            pair = self.model.tokenizer.encode_pair(query, text, max_tokens=most)
            found = self.encode(pair.tokens, hidden=False, outputs=True, second=pair.second).outputs
            assert found is not None
            rows[i] = found[0]
        return rows

    def rerank(self, query: str, texts: Sequence[str], label: int = 0) -> list[Ranked]:
        """The texts by how well they answer the query, the best first: score_pairs(), sorted by
        the score of one label."""
        n = self.model.info.n_outputs
        if not 0 <= label < max(n, 1):
            raise ArgumentError(f"label: expected 0 to {n - 1}, found {label}")
        scores = self.score_pairs(query, texts)[:, label]
        return [Ranked(int(i), float(scores[i])) for i in np.argsort(-scores, kind="stable")]

    def fill(self, text: str, top: int = 5) -> list[list[TokenLogprob]]:
        """For each mask of the text (the tokenizer's own, such as "<mask>"), the `top` most likely
        tokens, best first. UnsupportedError for a model that finds no tokens."""
        if top < 1:
            raise ArgumentError(f"top: expected at least 1, found {top}")
        info = self.model.info
        if not info.is_encoder or info.head != "tokens" or info.mask_token < 0:
            raise UnsupportedError("fill needs an encoder with a token head and a mask token")
        ids = self.model.tokenizer.encode(text, parse_special=True)
        rows = [i for i, token in enumerate(ids) if token == info.mask_token]
        if not rows:
            raise ArgumentError("the text has no mask: write "
                                f"{self.model.tokenizer.piece(info.mask_token)}")
        logits = self.encode(ids, hidden=False, outputs=True, rows=rows).outputs
        assert logits is not None
        z = logits.astype(np.float64)
        logprobs = z - np.logaddexp.reduce(z, axis=-1, keepdims=True)
        return [[TokenLogprob(int(i), float(row[i]))
                 for i in np.argsort(-row, kind="stable")[:top]] for row in logprobs]
