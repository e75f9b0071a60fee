# SPDX-License-Identifier: MIT
"""Four artificial languages, each with its own words, endings, word order and facts.

Languages are numbered. Nouns, verbs and adjectives are made of the language's own syllables; every noun
has a few verbs and adjectives that go with it, every verb a few nouns that it may act on. These facts
are the same in all texts and can only be memorised, which is what experts are good for.
"""

from __future__ import annotations

from dataclasses import dataclass

from stories.engine import Rng

NOUNS, VERBS, ADJECTIVES = 160, 60, 60

# consonants, vowels, codas, order of subject, verb and object, endings of the two noun classes, plural ending,
# object ending
SPECS = [
    ("p t k m n l s", "a e i o u", " n s", "SVO", ("a", "o"), "ki", "m"),
    ("b d g r v z sh tr", "a e i ai ou", " r k x", "SOV", ("en", "ur"), "esh", "ta"),
    ("π τ κ μ ν λ σ ρ", "α ε ι ο", " ν ς", "VSO", ("η", "ος"), "ων", "δε"),
    ("п т к м н л с в", "а е и о у", " н к", "SVO", ("а", "ь"), "ми", "го"),
]


@dataclass(frozen=True)
class Language:
    order: str
    endings: tuple[str, str]
    plural: str
    object_mark: str
    nouns: list[str]
    verbs: list[str]
    adjectives: list[str]
    does: list[list[int]]  # verbs of a noun
    like: list[list[int]]  # adjectives of a noun
    acts_on: list[list[int]]  # nouns of a verb


def _words(rng: Rng, spec: tuple, count: int, syllables: int, taken: set[str]) -> list[str]:
    """`count` words that differ from all other words of the language."""
    onsets, vowels, codas = spec[0].split(" "), spec[1].split(" "), spec[2].split(" ")
    words: list[str] = []
    while len(words) < count:
        word = "".join(rng.pick(onsets) + rng.pick(vowels) for _ in range(syllables)) + rng.pick(codas)
        if word not in taken:
            taken.add(word)
            words.append(word)
    return words


def _facts(rng: Rng, rows: int, each: int, of: int) -> list[list[int]]:
    return [[rng.below(of) for _ in range(each)] for _ in range(rows)]


def _language(number: int) -> Language:
    spec, rng = SPECS[number], Rng(41, number)
    taken: set[str] = set()
    nouns, verbs, adjectives = (
        _words(rng, spec, count, syllables, taken)
        for count, syllables in ((NOUNS, 2), (VERBS, 2), (ADJECTIVES, 1 if number else 2))
    )
    does, like = _facts(rng, NOUNS, 3, VERBS), _facts(rng, NOUNS, 2, ADJECTIVES)
    return Language(*spec[3:7], nouns, verbs, adjectives, does, like, _facts(rng, VERBS, 4, NOUNS))


LANGUAGES = [_language(n) for n in range(len(SPECS))]


@dataclass(frozen=True)
class Phrase:
    noun: int
    plural: bool
    adjective: int | None


def say(a: Language, p: Phrase, is_object: bool) -> str:
    """A noun with its endings, after its adjective, if any, which agrees with it. Nouns of even number
    belong to the first class."""
    ending = a.endings[p.noun % 2]
    noun = a.nouns[p.noun] + ending + (a.plural if p.plural else "") + (a.object_mark if is_object else "")
    return noun if p.adjective is None else f"{a.adjectives[p.adjective]}{ending} {noun}"


def phrase(a: Language, rng: Rng, noun: int) -> Phrase:
    """A phrase that has an adjective half of the time."""
    plural = rng.below(4) == 0
    return Phrase(noun, plural, None if rng.below(2) else rng.pick(a.like[noun]))


def sentence(a: Language, subject: str, verb: str, target: str) -> str:
    """A sentence in the word order of the language."""
    parts = {"S": subject, "V": verb, "O": target}
    return " ".join(parts[c] for c in a.order)


def text(number: int, rng: Rng) -> str:
    """Six to eight sentences; the object of a sentence is often the subject of the next one."""
    a, sentences = LANGUAGES[number], []
    subject = rng.below(NOUNS)
    for _ in range(6 + rng.below(3)):
        verb = rng.pick(a.does[subject])
        target = rng.pick(a.acts_on[verb])
        who, what = phrase(a, rng, subject), phrase(a, rng, target)
        sentences.append(sentence(a, say(a, who, False), a.verbs[verb], say(a, what, True)))
        subject = target if rng.below(3) else rng.below(NOUNS)
    return ". ".join(sentences) + "."
