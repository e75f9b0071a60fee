# SPDX-License-Identifier: MIT
"""RESULTS.md: the figures of the rows, table by table, and a verdict for each claimed ordering."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import paired
import report_routing
import rows
from claims import EXPLAINED, FIGURES, MISSING, TABLES, Claim, Table
from plan import PAIRS
from results import Result, Results

Column = tuple[str, str, Callable[[Result], float]]  # title, format, value


@dataclass(frozen=True)
class Measure:
    """How the results of a task are shown and compared. What is compared is `windows`, a number per window."""

    compared: str
    effect: Callable[[float], float]  # of a mean difference of windows, in percent or points
    unit: str
    columns: tuple[Column, ...]


def _key(title: str, spec: str, key: str, factor: float = 1.0) -> Column:
    return title, spec, lambda r: factor * r[key]


def _task(title: str, name: str) -> Column:
    return title, ".1f", lambda r: 100 * r["tasks"][name]


def _percent(difference: float) -> float:
    return 100 * math.expm1(difference)


def _points(difference: float) -> float:
    return 100 * difference


MEASURES = {
    "language": Measure("the loss per window; an effect is a ratio of perplexities", _percent, "%",
                        (_key("PyTorch", ".4f", "pytorch"), _key("`moe perplexity`", ".4f", "moe"))),
    "encoder": Measure("the share of wrong answers per example, mean of three tasks", _points, "points",
                       (_key("masked perplexity, PyTorch", ".4f", "pytorch"), _key("the same, `moe`", ".4f", "moe"),
                        _task("classes, %", "classes"), _task("tags, %", "tags"), _task("spans, %", "spans"))),
    "translation": Measure("the share of wrong words per sentence", _points, "points",
                           (_key("perplexity, PyTorch", ".4f", "pytorch"), _key("the same, `moe`", ".4f", "moe"),
                            _key("exact, %", ".1f", "exact", 100), _key("words, %", ".1f", "words", 100))),
}
SHARED: Column = ("capacity as in training", ".4f", lambda r: r.get("shared_capacity", r["pytorch"]))


def _columns(table: Table) -> tuple[Column, ...]:
    own = MEASURES[table.task].columns
    limited = table.task == "language" and any(rows.read(name).has_capacity() for name in table.rows)
    return (*own, SHARED) if limited else own


def test_of(claim: Claim, results: Results) -> paired.Test | None:
    """The paired test of a claim, over the seeds that both rows have; None: fewer than two."""
    a, b = ({r["seed"]: r["windows"] for r in results.get(name, [])} for name in (claim.better, claim.worse))
    seeds = sorted(set(a) & set(b))
    return paired.compare([a[s] for s in seeds], [b[s] for s in seeds])


Verdicts = dict[Claim, tuple[paired.Test | None, str]]


def judged(results: Results) -> Verdicts:
    """A verdict for every claim, all by one rule (paired.py): those of a table are a family."""
    out: Verdicts = {}
    for table in TABLES:
        claims = [claim for claim in table.claims if claim not in out]
        tests = [test_of(claim, results) for claim in claims]
        out |= {c: (t, v) for c, t, v in zip(claims, tests, paired.verdicts(tests), strict=True)}
    return out


def _line(name: str, columns: Sequence[Column], found: list[Result]) -> str:
    row = rows.read(name)
    values = [statistics.mean(map(value, found)) for _, _, value in columns]
    shown = [format(v, spec) for v, (_, spec, _) in zip(values, columns, strict=True)]
    losses = [statistics.mean(r["windows"]) for r in found]
    mean = {key: statistics.mean(r[key] for r in found) for key in ("params", "ffn_flops")}
    spread = MEASURES[row.task].effect(statistics.stdev(losses)) if len(found) > 1 else None
    experts = statistics.mean(e for r in found for e in r["experts"]) if found[0]["experts"] else None
    return (
        f"| {row.system} | {row.paper} | {' | '.join(shown)} | {len(found)} | "
        f"{'' if spread is None else f'{spread:.2f}'} | {mean['params'] / 1e3:.0f} k | {mean['ffn_flops'] / 1e3:.1f} k | "
        f"{'' if experts is None else f'{experts:.2f}'} |"
    )


def _p(p: float) -> str:
    return f"{p:.1g}" if p >= 1e-6 else "< 1e-6"


def _claim(claim: Claim, measure: Measure, test: paired.Test, verdict: str) -> str:
    low, high = (measure.effect(v) for v in test.interval())
    words = claim.words[0].upper() + claim.words[1:]
    return (f"| {words} | {verdict} | {measure.effect(test.effect):+.2f} | {low:+.2f} to {high:+.2f} | "
            f"{test.t:.1f} ({test.df:.1f}) | {_p(test.p)} |")


def _claims(table: Table, judged_: Verdicts) -> Iterator[str]:
    """The tested claims as a table, and the others as a sentence."""
    tested = [(c, *judged_[c]) for c in table.claims if judged_[c][0] is not None]
    if tested:
        measure = MEASURES[table.task]
        yield f"\n| claim | verdict | effect, {measure.unit} | 95 % interval | t (df) | p |\n|---|---|---|---|---|---|"
        yield from (_claim(c, measure, test, verdict) for c, test, verdict in tested)
    if untested := [c.words for c in table.claims if judged_[c][0] is None]:
        yield f"\n{paired.UNTESTED.capitalize()}: {'; '.join(untested)}."


def _table(table: Table, results: Results, judged_: Verdicts, figures: Sequence[str]) -> Iterator[str]:
    measure, columns = MEASURES[table.task], _columns(table)
    yield f"## {table.title}\n\n{table.note}\n"
    yield (f"| system | at the papers' width | {' | '.join(title for title, _, _ in columns)} | seeds | sd, {measure.unit} | "
           "parameters | FLOP/token | experts |")
    yield "|---|---|" + "---|" * (len(columns) + 5)
    yield from (_line(name, columns, results[name]) for name in table.rows if name in results)
    if missing := [rows.read(name).system for name in table.rows if name not in results]:
        yield f"\nNot run yet: {'; '.join(missing)}."
    yield from _claims(table, judged_)
    yield ""
    yield from (f"![{alt}]({name})\n" for title, name, alt in FIGURES if title == table.title and name in figures)
    yield from (f"{text}\n" for title, text in EXPLAINED if title == table.title)


def _count(n: int, thing: str) -> str:
    return f"{n} {thing}{'s' if n != 1 else ''}"


def _run(plan_words: str, note: str, results: Results) -> str:
    """The description of the runs."""
    seeds = [len(found) for found in results.values()]
    counts = ", ".join(f"{_count(seeds.count(n), 'row')} with {_count(n, 'seed')}" for n in sorted(set(seeds), reverse=True))
    seconds = sum(r["seconds"] for found in results.values() for r in found)
    planned = len({name for table in TABLES for name in table.rows})
    devices = " and ".join(sorted({r["device"] for found in results.values() for r in found}))
    words = (f"{len(results)} of {_count(planned, 'row')} are run: {counts}. {plan_words} Training took "
             f"{seconds / 3600:.1f} hours, the times of all runs together, on the {devices}.")
    return f"{words} {note}".strip()


def _differences(results: Results) -> str:
    worst: dict[str, float] = {}
    for name, found in results.items():
        kind = "int8 activations" if rows.read(name).has_int8_activations() else "f32"
        worst[kind] = max([worst.get(kind, 0.0), *(r["difference"] for r in found)])
    return " and ".join(f"{value:.1e} ({kind})" for kind, value in worst.items())


RULE = (
    "A row is the paper's system with every width divided by 4 (unless its d is given: by 768 / d) and a third of its layers (`rows/`). Perplexity is measured on "
    "held-out text of eight kinds (`texts/`) and averaged over seeds; sd is the standard deviation over seeds. FLOP/token "
    "covers the feed-forward layers with the experts counted by the runtime; experts is the number per (sub-)token.\n\n"
    "A claim is an ordering of the papers, or one of ours about gates and the start of training. Two rows are compared seed by seed "
    "and window by window. An effect is how much worse the row is that should be worse, relative to the other; below 0 it is better. "
    "t has the standard error over seeds and windows (`paired.py`), and the interval is that of the claim alone. A claim is *seen* or "
    "*contradicted* if its p is small enough by Holm's method over all claims of its table, those not tested yet included "
    f"(level {paired.LEVEL:g}), otherwise *not decided*; *not tested* means fewer than two seeds of both rows.\n"
)


def document(plan_words: str, note: str, results: Results, figures: Sequence[str] = ()) -> str:
    """The text of RESULTS.md; plan_words: a sentence about the size of the runs; figures: the files of those that
    are drawn."""
    judged_ = judged(results)
    n_tested = sum(test is not None for test, _ in judged_.values())
    counts = [f"{[v for _, v in judged_.values()].count(word)} {word}"
              for word in (paired.SEEN, paired.CONTRADICTED, paired.UNDECIDED, paired.UNTESTED)]
    lines = [
        "# The papers' tables in miniature\n",
        f"Written by `tables.py` from `results.jsonl`. {_run(plan_words, note, results)}\n",
        RULE,
        f"Of {_count(len(judged_), 'claim')}, {n_tested} tested: {', '.join(counts)}.\n",
        f"The two perplexities differ by at most this relative error: {_differences(results)}.\n",
    ]
    shown = [table for table in TABLES if any(name in results for name in table.rows)]
    for table in shown:
        lines += _table(table, results, judged_, figures)
    lines += report_routing.sections(results)
    if hidden := [t for t in TABLES if t not in shown]:
        lines += ["## Not run yet\n", *(f"- {t.title}: {_count(len(t.rows), 'row')}." for t in hidden), ""]
    lines += ["## What is not here\n", *(f"- {what}: {why}." for what, why in MISSING)]
    return "\n".join(lines) + "\n"


def plan_words(steps: int, batch: int) -> str:
    """The sentence about the size of the runs."""
    tokens = steps * batch * rows.read("dense").config["context_length"] / 1e6
    return f"A run has {steps} steps: {tokens:.2f} million tokens, or {PAIRS * steps * batch} pairs."
