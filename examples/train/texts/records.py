# SPDX-License-Identifier: MIT
"""Texts that are not language: sums, sequences, records and tables, with their own facts."""

from __future__ import annotations

from stories import words
from stories.engine import Rng

CITIES = [f"{a}{b}" for a in ("North", "Ash", "Bel", "Dun", "Kings", "Mill", "Ox", "Red")
          for b in ("ford", "ham", "port", "ton", "wick")]
TRADES = ["baker", "carter", "cooper", "dyer", "fletcher", "mason", "miller", "potter", "smith", "weaver"]
GOODS = ["bread", "barley", "barrels", "cloth", "arrows", "stone", "flour", "bowls", "nails", "linen"]


def sums(rng: Rng) -> str:
    """Ten lines: sums and differences of numbers below a hundred, and sequences of equal steps."""
    lines = []
    for _ in range(10):
        a, b = rng.below(100), rng.below(100)
        lines.append([f"{a} + {b} = {a + b}", f"{a + b} - {b} = {a}",
                      ", ".join(str(a + i * (1 + b % 9)) for i in range(6))][rng.below(3)])
    return "\n".join(lines)


def person(rng: Rng) -> dict[str, str | int]:
    """A person: the name determines trade and city, the trade the goods, and both the price."""
    names = words.GIRLS + words.BOYS
    who = rng.below(len(names))
    fixed = Rng(43, who)
    trade, city = fixed.below(len(TRADES)), fixed.below(len(CITIES))
    amount = 1 + rng.below(9)
    return {"name": names[who], "trade": TRADES[trade], "city": CITIES[city], "goods": GOODS[trade],
            "amount": amount, "price": amount * (2 + trade + city % 5)}


def records(rng: Rng) -> str:
    """Four records as JSON."""
    lines = []
    for _ in range(4):
        fields = (f'"{k}": {v}' if isinstance(v, int) else f'"{k}": "{v}"' for k, v in person(rng).items())
        lines.append("{" + ", ".join(fields) + "}")
    return "\n".join(lines)


def table(rng: Rng) -> str:
    """A table of five rows and their total."""
    people = [person(rng) for _ in range(5)]
    lines = ["| name | goods | amount | price |", "|---|---|---|---|"]
    lines += [f"| {p['name']} | {p['goods']} | {p['amount']} | {p['price']} |" for p in people]
    total = sum(int(p["price"]) for p in people)
    return "\n".join([*lines, f"| total | | | {total} |"])
