# SPDX-License-Identifier: MIT
"""Text to token ids and back."""

from __future__ import annotations

import ctypes as c
from typing import Any, NamedTuple

import numpy as np

from . import _structs as s
from ._arrays import Tokens, address, int32, token_array
from ._constants import DECODE_SKIP_SPECIAL, ENCODE_NO_SPECIAL, ENCODE_PARSE_SPECIAL
from ._handle import Uncopyable, text_bytes
from ._library import call, lib, text_of
from ._sized import integer
from .errors import TooLongError


def _bytes(text: Any) -> bytes:
    if isinstance(text, str):
        return text_bytes(text, "surrogateescape")
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise TypeError(f"text: expected a str or bytes, found {type(text).__name__}")


class TokenPair(NamedTuple):
    """Results of Tokenizer.encode_pair(). second: where the type of the second text begins, for
    Session.encode(); 0: there is none. n_cut: tokens of the texts that were left out."""

    tokens: list[int]
    second: int
    n_cut: int


class Tokenizer(Uncopyable):
    """The tokenizer of a model, which it keeps open. Any thread."""

    _what = "tokenizer"

    def __init__(self, model: Any, pointer: int) -> None:
        self._model = model
        self._tokenizer = pointer

    def __repr__(self) -> str:
        return f"<moe.Tokenizer of {self._model!r}>"

    def encode(self, text: str | bytes, *, special: bool = True,
               parse_special: bool = False) -> list[int]:
        """Token ids of a text.

        special:       as for a text that begins a sequence: with BOS where the model file says
                       so, or whatever else it puts around a text. False for a text that goes on.
        parse_special: special tokens spelled out in the text become their ids. Without it a text
                       can never forge them.
        """
        data = _bytes(text)
        flags = ((0 if special else ENCODE_NO_SPECIAL)
                 | (ENCODE_PARSE_SPECIAL if parse_special else 0))
        ids = np.empty(len(data) + 16, np.int32)  # a byte is at most a token, nearly always
        n = c.c_size_t()
        with self._model._pointer():
            try:
                call(lib.moe_tokenizer_encode, self._tokenizer, data, len(data), flags,
                     address(ids), len(ids), c.byref(n))
            except TooLongError:
                ids = np.empty(n.value, np.int32)
                call(lib.moe_tokenizer_encode, self._tokenizer, data, len(data), flags,
                     address(ids), len(ids), c.byref(n))
        return [int(i) for i in ids[: n.value]]

    def encode_pair(self, first: str | bytes, second: str | bytes, *, max_tokens: int = 0,
                    parse_special: bool = False) -> TokenPair:
        """Token ids of two texts in one sequence, such as a query and a passage.

        max_tokens: of more, the ends of the texts are left out, of the longer one first; 0: of any
                    number.
        parse_special: as of encode().
        """
        a, b = _bytes(first), _bytes(second)
        flags = ENCODE_PARSE_SPECIAL if parse_special else 0
        most = integer(max_tokens, "max_tokens", c.c_size_t)
        ids = np.empty(len(a) + len(b) + 64, np.int32)
        out = s.TokenPair()

        def run() -> None:
            call(lib.moe_tokenizer_encode_pair, self._tokenizer, a, len(a), b, len(b), flags, most,
                 address(ids), len(ids), c.byref(out))

        with self._model._pointer():
            try:
                run()
            except TooLongError:
                if out.n_tokens <= len(ids):
                    raise
                ids = np.empty(out.n_tokens, np.int32)
                run()
        return TokenPair([int(i) for i in ids[: out.n_tokens]], out.second, out.n_cut)

    def decode(self, tokens: Tokens, *, skip_special: bool = False) -> str:
        """Text of token ids; invalid UTF-8 becomes U+FFFD."""
        ids = token_array(tokens)
        flags = DECODE_SKIP_SPECIAL if skip_special else 0
        n = c.c_size_t()
        with self._model._pointer():
            call(lib.moe_tokenizer_decode, self._tokenizer, address(ids), len(ids), flags, None, 0,
                 c.byref(n))
            text = c.create_string_buffer(n.value + 1)
            call(lib.moe_tokenizer_decode, self._tokenizer, address(ids), len(ids), flags, text,
                 n.value + 1, c.byref(n))
        return text.raw[: n.value].decode("utf-8", "replace")

    def piece(self, token: int) -> str | None:
        """The vocabulary's spelling of a token; None for an invalid id."""
        with self._model._pointer():
            piece = lib.moe_tokenizer_piece(self._tokenizer, int32(token, "token"))
            return None if piece is None else text_of(piece)
