# SPDX-License-Identifier: MIT
"""The text of the tables: a mixture of stories, four artificial languages, sums, records and tables.

`document(seed, index)` is the same text on every machine. The kinds differ in script, words, grammar
and facts, so that a network with few active parameters per token cannot learn all of them.
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
    """A text of one kind. Held-out stories have pairs of hero and plot that training never contains."""
    rng = Rng(seed, index, KINDS.index(kind))
    if kind == "story":
        return story(seed, index, held_out=seed == HELD_OUT_SEED)
    if kind.startswith("language"):
        return languages.text(int(kind[-1]) - 1, rng)
    return {"sums": records.sums, "records": records.records, "table": records.table}[kind](rng)


def document(seed: int, index: int) -> str:
    """The text of that number; its kind is chosen uniformly."""
    return of_kind(KINDS[Rng(seed, index).below(len(KINDS))], seed, index)


def corpus(seed: int, size: int) -> str:
    """Documents 0, 1, ... separated by empty lines, with at least `size` characters."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(document(seed, len(parts)))
        length += len(parts[-1]) + 2
    return "\n\n".join(parts) + "\n"


@functools.cache
def fingerprint() -> str:
    """A hash of generated data: texts of every kind, pairs and examples of tasks, for training and
    held out."""
    made: list[object] = [document(seed, i) for seed in (TRAIN_SEED, HELD_OUT_SEED) for i in range(4)]
    made += [of_kind(kind, seed, i) for kind in KINDS for seed in (TRAIN_SEED, HELD_OUT_SEED) for i in range(4)]
    made += [translation.pair(seed, i) for seed in (translation.TRAIN_SEED, translation.HELD_OUT_SEED) for i in range(16)]
    made += [task(seed, i) for task in (tasks.classes, tasks.tags, tasks.spans)
             for seed in (tasks.TRAIN_SEED, tasks.HELD_OUT_SEED) for i in range(16)]
    return hashlib.sha256(repr(made).encode()).hexdigest()[:16]
