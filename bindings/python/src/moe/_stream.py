# SPDX-License-Identifier: MIT
"""Incremental decoding: whole characters from one token after another, and the search for stop strings."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ._handle import optional_bytes
from .errors import ArgumentError, RangeError
from .tokenizer import Tokenizer

_MAX_STOPS = 64
_MAX_STOP_BYTES = 4096
_FEW = 16  # each read decodes at least so many tokens again, usually at most four times as many


def check_stops(stops: tuple[str, ...]) -> None:
    """Checks stop strings as the library does, for text that the library does not generate itself."""
    if len(stops) > _MAX_STOPS:
        raise RangeError(f"at most {_MAX_STOPS} stop strings, found {len(stops)}")
    for i, stop in enumerate(map(optional_bytes, stops)):
        if not stop:
            raise ArgumentError(f"stop string {i} is empty")
        if len(stop) > _MAX_STOP_BYTES:
            raise RangeError(f"stop string {i}: at most {_MAX_STOP_BYTES} bytes, found {len(stop)}")


class StreamDecoder:
    """Decodes the tokens that follow a prompt, with its last tokens as context: they decide about a leading space and
    may end inside a character."""

    _n_read: int  # characters of the tokens below that were read
    _n_many: int  # tokens from which on they are shortened

    def __init__(self, tokenizer: Tokenizer, prompt: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = [token for token in prompt if self._has_text(token)]
        self._shorten()

    def push(self, token: int) -> None:
        if self._has_text(token):
            self._tokens.append(token)

    def read(self) -> str:
        """The complete characters since the last read."""
        whole = self._complete(self._tokens)
        new = whole[self._n_read:]
        self._n_read = len(whole)
        if len(self._tokens) >= self._n_many:
            self._shorten()
        return new

    def finish(self) -> str:
        """Everything since the last read."""
        return self._decode(self._tokens)[self._n_read:]

    def _has_text(self, token: int) -> bool:  # ids in a vocabulary's padding have none
        return self._tokenizer.piece(token) is not None

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special=True)

    def _complete(self, tokens: list[int]) -> str:
        """The part of the text that no further token changes: all but an incomplete character at the end."""
        text = self._decode(tokens)
        if not text.endswith("\ufffd"):
            return text
        return os.path.commonprefix([text, *(self._decode(tokens + more) for more in self._endings())])

    def _endings(self) -> list[list[int]]:
        """Tokens that complete half a character: up to three of its last byte, which may be 0x80 or
        must be greater (0xbf). These two characters end in them, and are in no vocabulary."""
        last = [self._tokenizer.encode(c, special=False)[-1:] for c in ("\U0010ffc0", "\U0010ffbf")]
        return [tokens * n for tokens in last for n in (1, 2, 3)]

    def _shorten(self) -> None:
        """Drops all but the last tokens. After a letter, text does not depend on the tokens before it."""
        n = _FEW
        while n < len(self._tokens) and not any(map(str.isalnum, self._complete(self._tokens[-n:]))):
            n *= 2
        self._tokens = self._tokens[-n:]
        self._n_read = len(self._complete(self._tokens))
        self._n_many = 4 * max(len(self._tokens), _FEW)


class StopMatcher:
    """Text up to the first complete stop string; of several that end there, the longest."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._n_open = max(map(len, stops), default=1) - 1
        self._done: list[str] = []
        self._open = ""  # the end of the text, in which a stop string may have begun
        self.stopped = False

    def push(self, text: str) -> bool:
        """True if a stop string was found; nothing may be pushed afterwards."""
        self._open += text
        ends = [(at + len(stop), at) for stop in self._stops if (at := self._open.find(stop)) >= 0]
        self.stopped = bool(ends)
        n = min(ends)[1] if ends else max(len(self._open) - self._n_open, 0)
        self._done.append(self._open[:n])
        self._open = "" if ends else self._open[n:]
        return self.stopped

    @property
    def text(self) -> str:
        return "".join(self._done) + self._open
