# SPDX-License-Identifier: MIT
"""The template language of the story generator.

A template is a string in which `[a|b|c]` picks one of its parts (parts may nest), and `{key}` is an
entry of the story's table. `expand` fills in both; `polish` capitalises the start of every sentence
and turns "a" into "an" before a vowel.

All random numbers come from `Rng`, a splitmix64 generator on integers, so that the same seed gives
the same text on every machine and with every version of Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
MASK = (1 << 64) - 1


class Rng:
    """splitmix64 (Steele, Lea and Flood 2014): 64 bits of state, integers only."""

    def __init__(self, *seeds: int) -> None:
        self.state = 0
        for seed in seeds:
            self.state = (self.state ^ (seed & MASK)) & MASK
            self.state = self.next()

    def next(self) -> int:
        """The next 64-bit integer."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        """An integer in 0..n-1."""
        return (self.next() >> 11) % n

    def pick(self, items: Sequence[T]) -> T:
        """One of `items`."""
        return items[self.below(len(items))]


def _choices(text: str, start: int) -> tuple[list[str], int]:
    """The parts of the bracket that opens at `start`, and the index after its end."""
    parts, depth, begin = [], 0, start + 1
    for i in range(start, len(text)):
        c = text[i]
        if c == "[":
            depth += 1
        elif c == "]":
            depth -= 1
            if depth == 0:
                parts.append(text[begin:i])
                return parts, i + 1
        elif c == "|" and depth == 1:
            parts.append(text[begin:i])
            begin = i + 1
    raise ValueError(f"bracket without an end: {text[start : start + 40]!r}")


def expand(text: str, table: Mapping[str, str], rng: Rng) -> str:
    """Fill in the brackets and keys of one template."""
    out, i = [], 0
    while i < len(text):
        c = text[i]
        if c == "[":
            parts, i = _choices(text, i)
            out.append(expand(rng.pick(parts), table, rng))
        elif c == "{":
            end = text.index("}", i)
            out.append(expand(table[text[i + 1 : end]], table, rng))
            i = end + 1
        else:
            out.append(c)
            i += 1
    return "".join(out)


def polish(text: str) -> str:
    """Single spaces, a capital after each full stop, "an" before a vowel."""
    text = re.sub(r" +", " ", text).strip()
    text = re.sub(r" ([.,!?])", r"\1", text)
    text = re.sub(r"\b([Aa]) (?=[aeiou])(?!one\b|use)", r"\1n ", text)
    return re.sub(r'(^|\n|[.!?] )("?)([a-z])', lambda m: m[1] + m[2] + m[3].upper(), text)
