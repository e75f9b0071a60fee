# SPDX-License-Identifier: MIT
"""RESULTS.md: the figures of the rows, table by table, and a verdict for each claimed ordering."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import paired
import rows
from claims import EXPLAINED, FIGURES, MISSING, SWEPT, TABLES, Claim, Table
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
    """A verdict for every claim, all by one rule (paired.py)."""
    claims = list(dict.fromkeys(claim for table in TABLES for claim in table.claims))
    tests = [test_of(claim, results) for claim in claims]
    return {c: (t, v) for c, t, v in zip(claims, tests, paired.verdicts(tests), strict=True)}


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
    """What was tested, as a table, and what was not, as a sentence."""
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
             f"{seconds / 3600:.1f} hours in all, on the {devices}.")
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


def _sweep(name: str, result: Result) -> Iterator[str]:
    sweep, full = result["sweep"], result["sweep"][-1]
    yield f"{rows.read(name).system}, seed {result['seed']}:\n"
    yield "| threshold | `moe perplexity` | experts | expert FLOP/token | of those of t = 1 |\n|---|---|---|---|---|"
    for entry in sweep:
        share = entry["expert_flops_per_token"] / full["expert_flops_per_token"]
        yield (f"| {entry['router'].removeprefix('threshold:')} | {entry['perplexity']:.4f} | "
               f"{entry['experts_per_token']:.2f} | {entry['expert_flops_per_token'] / 1e3:.1f} k | {share:.0%} |")
    best, saved = saving(sweep)
    yield (f"\nWith perplexity at most 1 % above that of t = 1, which uses {full['experts_per_token']:.2f} experts here, "
           f"{best['router'].replace(':', ' ')} saves {saved:.0%} of the expert FLOPs.\n")


def _sweeps(results: Results) -> Iterator[str]:
    found = [(name, r) for name in SWEPT for r in results.get(name, [])[:1] if "sweep" in r]
    if not found:
        return
    yield "## XMoE: other thresholds at inference\n"
    yield "`moe perplexity --sweep threshold=0.1:1:0.1`: the same weights, other thresholds.\n"
    for name, result in found:
        yield from _sweep(name, result)


def _capacities(results: Results) -> Iterator[str]:
    found = {name: [r for r in runs if "gammas" in r] for name, runs in results.items()}
    if not any(found.values()):
        return
    yield "## XMoE: other capacity factors\n"
    yield ("Perplexity with other capacity factors than in training (XMoE, fig. 4), in PyTorch: the capacity counted over the tokens "
           "of a batch of eight windows, as in training, and over those of one window, as by `moe perplexity`.\n")
    gammas = [entry["gamma"] for entry in next(runs for runs in found.values() if runs)[0]["gammas"]]
    yield f"| system | counted over | {' | '.join(f'gamma {g:g}' for g in gammas)} |\n|---|---|" + "---|" * len(gammas)
    for name, runs in found.items():
        for over in ("batch", "window") if runs else ():
            means = [statistics.mean(r["gammas"][i][over] for r in runs) for i in range(len(gammas))]
            yield f"| {rows.read(name).system} | a {over} | {' | '.join(f'{m:.4f}' for m in means)} |"
    yield ""


def _by_step(results: Results) -> Iterator[str]:
    """The experts of threshold rows by training step, where their number may change."""
    found = {name: [r["experts_curve"] for r in runs if r.get("experts_curve")] for name, runs in results.items()
             if any(f["kind"] == "moe" and f["moe"]["router"]["kind"] == "threshold" for f in rows.read(name).ffns())}
    found = {name: curves for name, curves in found.items() if curves}
    if not found:
        return
    shares = (0.05, 0.25, 0.5, 0.75, 1.0)
    yield "## XMoE: experts by training step\n"
    yield "Experts computed per token, mean over MoE layers and seeds, at the end of a share of the run.\n"
    yield f"| system | {' | '.join(f'{s:.0%}' for s in shares)} |\n|---|" + "---|" * len(shares)
    for name, curves in found.items():
        means = [statistics.mean(c[max(0, round(s * len(c)) - 1)] for c in curves) for s in shares]
        yield f"| {rows.read(name).system} | {' | '.join(f'{m:.2f}' for m in means)} |"
    yield ""


def _pearson(a: Sequence[float], b: Sequence[float]) -> float | None:
    """None where a side does not vary."""
    a, b = ([v - statistics.mean(x) for v in x] for x in (a, b))
    spread = math.sqrt(sum(v * v for v in a) * sum(v * v for v in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / spread if spread > 0 else None


def consistency(loads: Sequence[Sequence[int]]) -> float | None:
    """The mean correlation of the loads of one layer, in order of size, over all pairs of runs (X-MoE, section 4.5);
    None for fewer than two runs."""
    pairs = [_pearson(sorted(a), sorted(b)) for i, a in enumerate(loads) for b in loads[:i]]
    found = [value for value in pairs if value is not None]
    return statistics.mean(found) if found else None


def _mean(values: Sequence[float | None], spec: str) -> str:
    found = [v for v in values if v is not None]
    return format(statistics.mean(found), spec) if found else ""


def _routing_line(name: str, found: list[Result]) -> str:
    layers = [layer for r in found for layer in r["routing"]]
    sparse = [layer for layer in layers if "load" in layer]
    places = sorted({layer["layer"] for layer in sparse})
    by_layer = [[layer["load"] for layer in sparse if layer["layer"] == place] for place in places]
    fullest = [max(layer["load"]) * len(layer["load"]) / max(1, sum(layer["load"])) for layer in sparse]
    dense = [layer["positive"] for layer in layers if "load" not in layer]
    experts = [layer["positive"] for layer in sparse]
    return (f"| {rows.read(name).system} | {len(found)} | {_mean([layer['collapse'] for layer in sparse], '.1f')} | "
            f"{_mean([consistency(loads) for loads in by_layer], '.3f')} | {_mean(fullest, '.2f')} | {_mean(experts, '.1%')} | "
            f"{_mean(dense, '.1%')} |")


def _routing(results: Results) -> Iterator[str]:
    found = {name: [r for r in runs if "routing" in r] for name, runs in results.items()}
    shown = [name for name in dict.fromkeys(n for t in TABLES for n in t.rows) if found.get(name)]
    if not shown:
        return
    yield "## How the rows route\n"
    yield ("Measured by `moe.analyse` on the held-out text, means over seeds and layers ([definitions](../../docs/analysis.md#what-is-measured)). RC: representation "
           "collapse (X-MoE, eq. 11). Consistency: of the loads of experts between seeds (X-MoE, section 4.5). Fullest: the "
           "load of the fullest expert in even shares. Positive: inner activations above zero (XMoE, fig. 1) in experts and "
           "in dense layers.\n")
    yield "| system | seeds | RC | consistency | fullest | positive, experts | positive, dense |\n|---|---|---|---|---|---|---|"
    yield from (_routing_line(name, found[name]) for name in shown)
    yield ""


RULE = (
    "A row is the paper's system with every width divided by 4 and a third of its layers (`rows/`). Perplexity is measured on "
    "held-out text of eight kinds (`texts/`) and averaged over seeds; sd is the standard deviation over seeds. FLOP/token "
    "covers the feed-forward layers with the experts counted by the runtime; experts is the number per (sub-)token.\n\n"
    "A claim is an ordering of the papers. Two rows are compared seed by seed and window by window; an effect is above 0 if it "
    "is in favour of the paper, t has the standard error over seeds and windows (`paired.py`), and the interval is that of the "
    "claim alone. A claim is *seen* or *contradicted* if its p is small enough by Holm's method over all tested claims of this "
    f"page together (level {paired.LEVEL:g}), otherwise *not decided*; *not tested* means fewer than two seeds of both rows.\n"
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
    lines += _sweeps(results)
    lines += [*_capacities(results), *_by_step(results), *_routing(results)]
    if hidden := [t for t in TABLES if t not in shown]:
        lines += ["## Not run yet\n", *(f"- {t.title}: {_count(len(t.rows), 'row')}." for t in hidden), ""]
    lines += ["## What is not here\n", *(f"- {what}: {why}." for what, why in MISSING)]
    return "\n".join(lines) + "\n"


def plan_words(steps: int, batch: int) -> str:
    """The sentence about the size of the runs."""
    tokens = steps * batch * rows.read("dense").config["context_length"] / 1e6
    return f"A run has {steps} steps: {tokens:.2f} million tokens, or {PAIRS * steps * batch} pairs."
