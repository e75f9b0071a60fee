# SPDX-License-Identifier: MIT
"""Small English stories, generated from integers: `story(seed, index)` is always the same text.

A story has a hero, a place, a wish, an obstacle with its cause, a helper and an ending. The pair of
hero's name and plot decides the split: one pair in seven is reserved for held-out text, so a held-out
story never has a hero that training has seen in that plot.
"""

from __future__ import annotations

from . import plots_in, plots_out, words
from .engine import Rng, expand, polish

PLOTS = plots_out.PLOTS + plots_in.PLOTS

NAMES = words.GIRLS + words.BOYS + words.BEAST_NAMES
HELD_OUT_EVERY = 7

OPENINGS = [
    "[Once upon a time|Long ago|Once], there was a {trait} {hkind} named {h}, who lived {home}.",
    "[Once upon a time|Many years ago], a {trait} {hkind} [named|called] {h} lived {home}.",
    "{h} was a {trait} {hkind} who lived {home}.",
    "There was once a {hkind} [named|called] {h}. {He} lived {home}.",
    "{home2} lived a {hkind} named {h}.",
]
TRAIT_LINES = [
    "{h} was [very|so] {trait}: {shows}.",
    "Everyone knew that {h} was {trait}. {Shows}.",
    "{Shows}.",
    "[{His}|{h}'s] best friend was {f}, {fintro}.",
    "{Shows}. {His} best friend was {f}, {fintro}.",
    "",
]
ENDINGS = [
    "{last}.",
    "{last}, and everyone was {feeling}.",
    "{last}. {h} was {feeling}.",
    "{last}. [And so the day ended well.|That evening {h} fell asleep with a smile.]",
    "{h} was [very {feeling}|{feeling} again]. {last}.",
]


def _being(rng: Rng) -> tuple[str, str, str, bool]:
    """A name, its kind ("girl", "fox"), a pronoun, and whether it is an animal."""
    sort = rng.below(3)
    if sort == 0:
        return rng.pick(words.GIRLS), "girl", "she", False
    if sort == 1:
        return rng.pick(words.BOYS), "boy", "he", False
    return rng.pick(words.BEAST_NAMES), rng.pick(words.BEASTS), rng.pick(["he", "she"]), True


def _pronouns(table: dict[str, str], prefix: str, he: str) -> None:
    him, his = ("him", "his") if he == "he" else ("her", "her")
    table |= {
        f"{prefix}he": he,
        f"{prefix}him": him,
        f"{prefix}his": his,
        f"{prefix}himself": f"{him}self",
    }
    cap = prefix.capitalize() if prefix else ""
    table |= {
        f"{cap}he" if prefix else "He": he.capitalize(),
        f"{cap}his" if prefix else "His": his.capitalize(),
    }


def _things(rng: Rng, table: dict[str, str]) -> None:
    """Fills in every key that a plot may use; the entries of a row of words.py are used together."""
    place, where, hide, seen = rng.pick(words.PLACES)
    other = rng.pick([p for p in words.PLACES if p[0] != place])
    sky, result = rng.pick(words.WEATHER)
    table |= {
        "place": place,
        "inplace": where,
        "hide": rng.pick(hide.split("|")),
        "seen": seen,
        "wrong": rng.pick(other[2].split("|")),
        "sky": sky,
        "Sky": sky,
        "sky2": "[dark clouds came up|the air grew heavy|"
        "the moon hid behind the clouds|the birds were silent]",
        "tool": rng.pick(["rope", "long stick", "spade", "broom"]),
        "hut": rng.pick(["house", "hut", "cabin", "tower"]),
        "result": result,
        "time": rng.pick(words.TIMES),
        "Then": "[Then|Just then|At that moment]",
        "One": "One",
        "Tomorrow": "[Tomorrow|The next day]",
        "toy": rng.pick(words.TOYS),
        "keep": rng.pick(words.KEEPSAKES),
        "keep2": rng.pick(words.KEEPSAKES),
        "col": rng.pick(words.COLOURS),
        "size": rng.pick(words.SIZES),
        "feeling": rng.pick(words.FEELINGS),
        "sad": rng.pick(words.SAD),
        "time2": "[one day|one morning|yesterday]",
    }
    rows = [
        (words.DISHES, "dish missing owner purpose smell"),
        (words.YOUNG, "young parent habitat sound"),
        (words.BROKEN, "thing part fix fixing use"),
        (words.NOISES, "noise source doing"),
        (words.SKILLS, "skill doing_skill where failed advice"),
        (words.GIFTS, "material gift effect"),
        (words.SEEDS, "seed danger rescue fruit"),
    ]
    for choices, names in rows:
        table |= dict(zip(names.split(), rng.pick(choices), strict=True))
    goods = [g for g in ("bread", "potatoes", "apples", "nuts", "eggs", "pears")]
    table["goods2"] = rng.pick(goods)


def _cast(rng: Rng, plot: int, held_out: bool) -> dict[str, str]:
    """The hero, friend, elder and tradesman with their pronouns."""
    while True:
        name, kind, he, beast = _being(rng)
        if ((NAMES.index(name) + plot) % HELD_OUT_EVERY == 0) == held_out:
            break
    table = {"h": name, "hkind": kind}
    _pronouns(table, "", he)
    friend = _being(rng)
    while friend[0] == name:
        friend = _being(rng)
    table |= {
        "f": friend[0],
        "fintro": f"a {rng.pick(['small', 'clever', 'funny', 'quiet', 'friendly'])} {friend[1]}",
    }
    _pronouns(table, "f", friend[2])
    table["his2"] = table["fhis"]
    who, ehe = rng.pick(words.ELDERS)
    _pronouns(table, "e", ehe)
    table |= {"e": f"{{his}} {who}", "E": f"{{His}} {who}"}
    trade, the, goods = rng.pick(words.TRADES)
    _pronouns(table, "t", the)
    table |= {"t": f"the {trade}", "the": the, "The": the.capitalize(), "goods": goods}
    trait, shows = rng.pick(words.TRAITS)
    home = rng.pick(words.BURROWS if beast else words.HOMES)
    return table | {
        "trait": trait,
        "shows": shows,
        "Shows": shows,
        "home": home,
        "home2": home.capitalize(),
    }


def story(seed: int, index: int, held_out: bool = False) -> str:
    """Story number `index` of the collection `seed`: paragraphs on lines of their own."""
    rng = Rng(seed, index, int(held_out))
    plot = rng.below(len(PLOTS))
    table = _cast(rng, plot, held_out)
    _things(rng, table)
    name, body, last = PLOTS[plot]
    table["last"] = last
    traits = TRAIT_LINES if name != "new" else [t for t in TRAIT_LINES if "{f}" not in t]
    opening = rng.pick(OPENINGS) + " " + rng.pick(traits)
    lines = [opening] + body.strip().split("\n") + [rng.pick(ENDINGS)]
    return "\n".join(polish(expand(line, table, rng)) for line in lines)
