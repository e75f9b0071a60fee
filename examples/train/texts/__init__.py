"""The text of the tables: stories, four made-up languages, sums, records and tables, mixed.

`document(seed, index)` is always the same text, on every machine. Kinds differ in script, words,
grammar and facts, so that a network of few parameters a token has to choose what to know.
"""

from __future__ import annotations

import functools
import hashlib

from stories import story
from stories.engine import Rng

from . import languages, records, tasks, translation

TRAIN_SEED, HELD_OUT_SEED = 11, 12
KINDS = ("story", "language 1", "language 2", "language 3", "language 4", "sums", "records", "table")


def of_kind(kind: str, seed: int, index: int) -> str:
    """A text of one kind. Held-out stories are of pairings that training never shows."""
    rng = Rng(seed, index, KINDS.index(kind))
    if kind == "story":
        return story(seed, index, held_out=seed == HELD_OUT_SEED)
    if kind.startswith("language"):
        return languages.text(int(kind[-1]) - 1, rng)
    return {"sums": records.sums, "records": records.records, "table": records.table}[kind](rng)


def document(seed: int, index: int) -> str:
    """The text of that number; its kind is drawn, all kinds alike."""
    return of_kind(KINDS[Rng(seed, index).below(len(KINDS))], seed, index)


def corpus(seed: int, size: int) -> str:
    """Documents 0, 1, ... with an empty line between two, until there are `size` characters."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(document(seed, len(parts)))
        length += len(parts[-1]) + 2
    return "\n\n".join(parts) + "\n"


@functools.cache
def fingerprint() -> str:
    """Changes with what is generated: a few texts of every kind, pairs and examples of tasks, to learn
    and held out."""
    made: list[object] = [document(seed, i) for seed in (TRAIN_SEED, HELD_OUT_SEED) for i in range(4)]
    made += [of_kind(kind, seed, i) for kind in KINDS for seed in (TRAIN_SEED, HELD_OUT_SEED) for i in range(4)]
    made += [translation.pair(seed, i) for seed in (translation.TRAIN_SEED, translation.HELD_OUT_SEED) for i in range(16)]
    made += [task(seed, i) for task in (tasks.classes, tasks.tags, tasks.spans)
             for seed in (tasks.TRAIN_SEED, tasks.HELD_OUT_SEED) for i in range(16)]
    return hashlib.sha256(repr(made).encode()).hexdigest()[:16]
