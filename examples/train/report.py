# SPDX-License-Identifier: MIT
"""RESULTS.md: the figures of the rows, table by table, and which of the claimed orderings were seen."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import rows
from claims import MISSING, TABLES, Claim, Table
from plan import PAIRS

Result = dict[str, Any]
Results = dict[str, list[Result]]  # row: results of its seeds
Sweeps = dict[str, list[dict[str, Any]]]  # row: an entry per threshold, the last of which is 1


Column = tuple[str, str, Callable[[Result], float]]  # title, format, value


@dataclass(frozen=True)
class Measure:
    """How the results of a task are shown and compared."""

    unit: str
    value: Callable[[Result], float]  # lower is better
    columns: tuple[Column, ...]


def _key(title: str, spec: str, key: str, factor: float = 1.0) -> Column:
    return title, spec, lambda r: factor * r[key]


def _task(title: str, name: str) -> Column:
    return title, ".1f", lambda r: 100 * r["tasks"][name]


MEASURES = {
    "language": Measure("perplexity", lambda r: r["moe"],
                        (_key("PyTorch", ".4f", "pytorch"), _key("`moe perplexity`", ".4f", "moe"))),
    "encoder": Measure("% of wrong answers, mean of three tasks", lambda r: 100 * (1 - statistics.mean(r["tasks"].values())),
                       (_key("masked perplexity, PyTorch", ".4f", "pytorch"), _key("the same, `moe`", ".4f", "moe"),
                        _task("classes, %", "classes"), _task("tags, %", "tags"), _task("spans, %", "spans"))),
    "translation": Measure("% of wrong words", lambda r: 100 * (1 - r["words"]),
                           (_key("perplexity, PyTorch", ".4f", "pytorch"), _key("the same, `moe`", ".4f", "moe"),
                            _key("exact, %", ".1f", "exact", 100), _key("words, %", ".1f", "words", 100))),
}


def values(results: Results, name: str) -> list[float]:
    """The compared figure of a row, one number per seed."""
    found = results.get(name, [])
    return [MEASURES[rows.read(name).task].value(r) for r in found]


def _range(values: Sequence[float]) -> float | None:
    return max(values) - min(values) if len(values) > 1 else None


def largest_spread(results: Results, task: str) -> float | None:
    """The widest spread over seeds of all rows of a task, since a single row has too few seeds to estimate its own."""
    own = [name for name in results if rows.read(name).task == task]
    found = [s for name in own if (s := _range(values(results, name))) is not None]
    return max(found) if found else None


def verdict(better: Sequence[float], worse: Sequence[float], spread: float | None) -> str:
    """Whether an ordering was seen: the means over seeds must differ by more than `spread`, the widest
    spread of any row."""
    if not better or not worse:
        return "not trained"
    if spread is None or min(len(better), len(worse)) < 2:
        return "not decided: one seed"
    difference = statistics.mean(worse) - statistics.mean(better)
    if abs(difference) <= spread:
        return "not decided: within the spread over seeds"
    return "seen" if difference > 0 else "not seen: the other way round"


def _sentence(claim: Claim, results: Results, spread: float | None) -> str:
    a, b = values(results, claim.better), values(results, claim.worse)
    found = f" ({statistics.mean(a):.3f} against {statistics.mean(b):.3f})" if a and b else ""
    return f"- {claim.words[0].upper()}{claim.words[1:]}: {verdict(a, b, spread)}{found}."


def _line(name: str, results: Results) -> str:
    row, found = rows.read(name), results.get(name, [])
    columns = MEASURES[row.task].columns
    if not found:
        return f"| {row.system} | {row.paper} |{' |' * (len(columns) + 3)} not trained |"
    shown = [format(statistics.mean(map(value, found)), spec) for _, spec, value in columns]
    mean = {key: statistics.mean(r[key] for r in found) for key in ("params", "ffn_flops")}
    spread = _range(values(results, name))
    experts = statistics.mean(e for r in found for e in r["experts"]) if found[0]["experts"] else None
    return (
        f"| {row.system} | {row.paper} | {' | '.join(shown)} | "
        f"{'' if spread is None else f'{spread:.3f}'} | {mean['params'] / 1e3:.0f} k | {mean['ffn_flops'] / 1e3:.1f} k | "
        f"{'' if experts is None else f'{experts:.2f}'} |"
    )


def _table(table: Table, results: Results) -> Iterator[str]:
    measure, spread = MEASURES[table.task], largest_spread(results, table.task)
    titles = [title for title, _, _ in measure.columns]
    compared = "" if table.task == "language" else f" Rows are compared by {measure.unit}."
    yield f"## {table.title}\n\n{table.note}{compared}\n"
    yield f"| system | at the papers' width | {' | '.join(titles)} | spread | parameters | FLOP/token | experts |"
    yield "|---|---|" + "---|" * (len(titles) + 4)
    yield from (_line(name, results) for name in table.rows)
    yield ""
    yield from (_sentence(claim, results, spread) for claim in table.claims)
    yield ""


def _count(n: int, thing: str) -> str:
    return f"{n} {thing}{'s' if n != 1 else ''}"


def _run(kind: str, note: str, windows: int, results: Results) -> str:
    """The description of the run; windows: the number that every row was trained on."""
    seeds = [len(found) for found in results.values()]
    counts = ", ".join(
        f"{_count(seeds.count(n), 'row')} with {_count(n, 'seed')}" for n in sorted(set(seeds), reverse=True)
    )
    tokens = windows * rows.read("dense").config["context_length"] / 1e6
    minutes = sum(r["seconds"] for found in results.values() for r in found) / 60
    words = (
        f"A {kind} run of {len(results)} of {_count(len(rows.names()), 'row')}: {counts}, {tokens:.2f} million tokens each, "
        f"or {PAIRS * windows} pairs; {minutes:.0f} minutes of training, one thread per row."
    )
    return f"{words} {note}".strip()


def _differences(results: Results) -> str:
    worst: dict[str, float] = {}
    for name, found in results.items():
        kind = "int8 activations" if rows.read(name).has_int8_activations() else "f32"
        worst[kind] = max([worst.get(kind, 0.0), *(r["difference"] for r in found)])
    return " and ".join(f"{value:.1e} ({kind})" for kind, value in worst.items())


def saving(sweep: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], float]:
    """The threshold with the fewest experts that is at most 1 % worse than t = 1, and the share of expert
    operations it saves."""
    full = sweep[-1]
    good = [entry for entry in sweep if entry["perplexity"] <= 1.01 * full["perplexity"]]
    best = min(good, key=lambda entry: entry["expert_flops_per_token"])
    return best, 1 - best["expert_flops_per_token"] / full["expert_flops_per_token"]


def _sweep(name: str, sweep: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f"{rows.read(name).system}, one seed:\n"
    yield "| threshold | `moe perplexity` | experts | expert FLOP/token |\n|---|---|---|---|"
    for entry in sweep:
        yield (f"| {entry['router'].removeprefix('threshold:')} | {entry['perplexity']:.4f} | "
               f"{entry['experts_per_token']:.2f} | {entry['expert_flops_per_token'] / 1e3:.1f} k |")
    best, saved = saving(sweep)
    full = sweep[-1]["experts_per_token"]
    yield (f"\nWith perplexity at most 1 % above that of t = 1, which uses {full:.2f} experts here, "
           f"{best['router'].replace(':', ' ')} saves {saved:.0%} of the expert FLOPs.\n")


def _sweeps(sweeps: Sweeps) -> Iterator[str]:
    if not sweeps:
        return
    yield "## XMoE: other thresholds at inference\n"
    yield "`moe perplexity --sweep threshold=0.1:1:0.1`: the same weights, other thresholds.\n"
    for name, sweep in sweeps.items():
        yield from _sweep(name, sweep)


def document(kind: str, note: str, windows: int, results: Results, sweeps: Sweeps) -> str:
    """The text of RESULTS.md."""
    spreads = {m.unit: s for task, m in MEASURES.items() if (s := largest_spread(results, task)) is not None}
    lines = [
        "# The papers' tables in miniature\n",
        f"Written by `tables.py`. {_run(kind, note, windows, results)}\n",
        "A row is the paper's system with every width divided by 16 and a third of its layers (`rows/`). Perplexity is measured on "
        "held-out text of eight kinds (`texts/`) and averaged over seeds; spread is the largest minus the smallest. FLOP/token "
        "covers the feed-forward layers with the experts counted by the runtime; experts is the number per (sub-)token. "
        "An ordering counts as seen if both rows have several seeds and their means differ by more than the widest spread of "
        f"any row of the same task{''.join(f', {s:.3f} ({unit})' for unit, s in spreads.items())}.\n",
        f"The two perplexities differ by at most this relative error: {_differences(results)}.\n",
    ]
    for table in TABLES:
        lines += _table(table, results)
    lines += _sweeps(sweeps)
    lines += ["## What is not here\n", *(f"- {what}: {why}." for what, why in MISSING)]
    return "\n".join(lines) + "\n"
