# SPDX-License-Identifier: MIT
"""Sentences in one of three artificial languages, and their translations to a fourth.

The rules: a word has one translation, but a noun's class may change, with which its adjective agrees; a
verb has two translations, one for each class of its object; words are in the order of their language.
Held-out texts combine nouns that training never combines.
"""

from __future__ import annotations

from stories.engine import Rng

from .languages import LANGUAGES, Language, Phrase, say, sentence

TARGET, SOURCES = LANGUAGES[0], LANGUAGES[1:]
NOUNS, VERBS, ADJECTIVES = 48, 24, 24  # the first ones of each language, in any combination
TRAIN_SEED, HELD_OUT_SEED = 21, 22


def _shuffled(seed: int, n: int) -> list[int]:
    return sorted(range(n), key=lambda i: Rng(47, seed, i).next())


_NOUN, _ADJECTIVE = _shuffled(1, NOUNS), _shuffled(2, ADJECTIVES)
_VERB = (_shuffled(3, VERBS), _shuffled(4, VERBS))  # by the class of the object in the target


def _translated(p: Phrase) -> Phrase:
    return Phrase(_NOUN[p.noun], p.plural, None if p.adjective is None else _ADJECTIVE[p.adjective])


def is_held_out(subject: int, target: int) -> bool:
    """Whether a pair of subject and object is held out, as one in seven is."""
    return (3 * subject + target) % 7 == 0


def _nouns(rng: Rng, held_out: bool) -> tuple[int, int]:
    """A subject and an object."""
    while True:
        subject, target = rng.below(NOUNS), rng.below(NOUNS)
        if is_held_out(subject, target) == held_out:
            return subject, target


def _phrase(rng: Rng, noun: int) -> Phrase:
    """A phrase, plural one time in four, with an adjective half of the time."""
    return Phrase(noun, rng.below(4) == 0, rng.below(ADJECTIVES) if rng.below(2) else None)


def _pair(a: Language, rng: Rng, held_out: bool) -> tuple[str, str]:
    """A sentence and its translation."""
    (subject, target), verb = _nouns(rng, held_out), rng.below(VERBS)
    who, what = _phrase(rng, subject), _phrase(rng, target)
    said = sentence(a, say(a, who, False), a.verbs[verb], say(a, what, True))
    who, what = _translated(who), _translated(what)
    means = TARGET.verbs[_VERB[what.noun % 2][verb]]
    return said, sentence(TARGET, say(TARGET, who, False), means, say(TARGET, what, True))


def pair(seed: int, index: int) -> tuple[str, str]:
    """One or two sentences of one language and their translation; the same on every machine."""
    rng = Rng(seed, index, 9)
    a = rng.pick(SOURCES)
    pairs = [_pair(a, rng, seed == HELD_OUT_SEED) for _ in range(1 + rng.below(2))]
    said, meant = zip(*pairs, strict=True)
    return ". ".join(said) + ".", ". ".join(meant) + "."
