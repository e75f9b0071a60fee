# SPDX-License-Identifier: MIT
"""The parts of RESULTS.md about routing: other thresholds and capacity factors, experts by training step, and how the
rows route."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import rows
from claims import SWEPT, TABLES
from results import Result, Results


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
            f"{_mean([r['fluctuation'][-1] for r in found if r.get('fluctuation')], '.1%')} | "
            f"{_mean([consistency(loads) for loads in by_layer], '.3f')} | {_mean(fullest, '.2f')} | {_mean(experts, '.1%')} | "
            f"{_mean(dense, '.1%')} |")


def _routing(results: Results) -> Iterator[str]:
    found = {name: [r for r in runs if "routing" in r] for name, runs in results.items()}
    shown = [name for name in dict.fromkeys(n for t in TABLES for n in t.rows) if found.get(name)]
    if not shown:
        return
    yield "## How the rows route\n"
    yield ("Measured by `moe.analyse` on the held-out text but for RF, means over seeds and layers ([definitions](../../docs/analysis.md#what-is-measured)). RC: representation "
           "collapse (X-MoE, eq. 11). RF: (sub-)tokens of the first batch of training that go first to another expert than a twentieth of the run before its "
           "end (X-MoE, fig. 3a), of those runs that recorded it. RC and RF are of whole tokens for some rows and of sub-tokens for others, and do not compare there. "
           "Consistency: of the loads of experts between seeds (X-MoE, section 4.5), in order of size. That alone makes it high: independent random loads "
           "(Dirichlet, parameter 15) have 0.92 with 8 experts, 0.95 with 16, 0.97 with 40 and 0.99 with 96. Fullest: the "
           "load of the fullest expert in even shares. Positive: inner activations above zero (XMoE, fig. 1) in experts and "
           "in dense layers.\n")
    yield "| system | seeds | RC | RF | consistency | fullest | positive, experts | positive, dense |\n" + "|---" * 8 + "|"
    yield from (_routing_line(name, found[name]) for name in shown)
    yield ""


def sections(results: Results) -> Iterator[str]:
    """All of them that have results."""
    for part in (_sweeps, _capacities, _by_step, _routing):
        yield from part(results)
