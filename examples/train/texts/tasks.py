# SPDX-License-Identifier: MIT
"""Tasks for a model that was pre-trained on the text of the tables: the fault of a sentence, the tags of
its words, and the position of an answer in a table. Examples are generated from integers alone.
"""

from __future__ import annotations

from stories.engine import Rng

from . import records
from .languages import LANGUAGES, NOUNS, VERBS, Language, Phrase, phrase, say

TRAIN_SEED, HELD_OUT_SEED = 31, 32
FAULTS = ("none", "verb", "object", "order")
TAGS = ("subject", "verb", "object", "adjective")
Span = tuple[int, int]  # first character, end


def _but(rng: Rng, n: int, known: list[int]) -> int:
    """A number below n that is not in `known`."""
    while (i := rng.below(n)) in known:
        pass
    return i


def _words(a: Language, who: Phrase, verb: int, what: Phrase, order: str) -> list[tuple[str, int]]:
    """The words of a sentence, each with its tag."""
    parts = {"S": (say(a, who, False), 0), "V": (a.verbs[verb], 1), "O": (say(a, what, True), 2)}
    words = []
    for part in order:
        said, tag = parts[part]
        *adjective, word = said.split(" ")
        words += [(w, 3) for w in adjective] + [(word, tag)]
    return words


def _sentence(a: Language, rng: Rng, fault: str = "none") -> list[tuple[str, int]]:
    """A sentence with that fault: a verb that does not go with its subject, an object that does not go
    with its verb, or the verb in the wrong place."""
    subject = rng.below(NOUNS)
    verb = _but(rng, VERBS, a.does[subject]) if fault == "verb" else rng.pick(a.does[subject])
    known = a.acts_on[verb]
    target = _but(rng, NOUNS, known) if fault == "object" else rng.pick(known)
    order = a.order if fault != "order" else {"SVO": "VSO", "SOV": "SVO", "VSO": "SOV"}[a.order]
    return _words(a, phrase(a, rng, subject), verb, phrase(a, rng, target), order)


def classes(seed: int, index: int) -> tuple[str, int]:
    """Two sentences, and the fault (of FAULTS) that one of them has."""
    rng = Rng(seed, index, 1)
    a, label, faulty = rng.pick(LANGUAGES), rng.below(len(FAULTS)), rng.below(2)
    said = [_sentence(a, rng, FAULTS[label] if i == faulty else "none") for i in range(2)]
    return ". ".join(" ".join(w for w, _ in words) for words in said) + ".", label


def tags(seed: int, index: int) -> tuple[str, list[tuple[Span, int]]]:
    """Two or three sentences of varying languages, and the positions and tags of their words."""
    rng = Rng(seed, index, 2)
    text, found = "", []
    for _ in range(2 + rng.below(2)):
        for word, tag in _sentence(rng.pick(LANGUAGES), rng):
            found.append(((len(text), len(text) + len(word)), tag))
            text += word + " "
        text = text[:-1] + ". "
    return text[:-1], found


def spans(seed: int, index: int) -> tuple[str, Span]:
    """A question about one of four rows of a table, and the position of its answer."""
    rng = Rng(seed, index, 3)
    people: dict[str, dict[str, str | int]] = {}
    while len(people) < 4:
        person = records.person(rng)
        people.setdefault(str(person["name"]), person)
    asked, key = rng.pick(sorted(people)), rng.pick(("goods", "amount", "price"))
    text, span = f"{asked}, {key}\n", (0, 0)
    for p in people.values():
        text += "|"
        for column in ("name", "goods", "amount", "price"):
            cell = str(p[column])
            if p["name"] == asked and column == key:
                span = (len(text) + 1, len(text) + 1 + len(cell))
            text += f" {cell} |"
        text += "\n"
    return text[:-1], span
