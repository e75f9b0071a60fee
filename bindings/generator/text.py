# SPDX-License-Identifier: MIT
"""Names and comments in the form of a language."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

ACRONYMS: frozenset[str] = frozenset()


def camel(words: Iterable[str], acronyms: frozenset[str] = ACRONYMS) -> str:
    """CamelCase; words in `acronyms` keep capitals."""
    return "".join(w.upper() if w.upper() in acronyms else w[:1].upper() + w[1:].lower() for w in words)


def wrapped(text: str, width: int) -> list[str]:
    """A comment in lines of that width. Paragraphs remain, and lines that are indented."""
    lines: list[str] = []
    paragraph: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.strip() and not line.startswith(" "):
            paragraph.append(line)
            continue
        lines += textwrap.wrap(" ".join(paragraph), width, break_long_words=False, break_on_hyphens=False)
        paragraph = []
        lines.append(line)
    while lines and not lines[-1]:
        lines.pop()
    return lines
