# SPDX-License-Identifier: MIT
"""The figures of RESULTS.md, drawn from the file of results by the charts of `moe analyse`."""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
from pathlib import Path
from types import ModuleType

import rows
from claims import GATED, RAW, STUDIED, WIDTHS, at
from results import Results

CHARTS = Path(__file__).resolve().parents[2] / "bindings/python/src/moe/analyse/charts.py"
SHOWN = (*STUDIED, *RAW)


def _charts() -> ModuleType:
    """The module of charts, by its path: this folder has another module `moe`."""
    spec = importlib.util.spec_from_file_location("analyse_charts", CHARTS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def _perplexity(results: Results, name: str) -> float | None:
    found = results.get(name)
    return statistics.mean(r["moe"] for r in found) if found else None


def by_width(results: Results) -> list[tuple[str, list[tuple[float, float]]]]:
    """Each system's perplexities as a ratio to those of SMoE at the same width: (width, ratio) where both are run."""
    out = []
    for name in SHOWN:
        widths = GATED if name in RAW else WIDTHS
        pairs = [(w, _perplexity(results, at(name, w)), _perplexity(results, at(STUDIED[0], w))) for w in widths]
        points = [(float(w), own / base) for w, own, base in pairs if own is not None and base is not None]
        if points:
            out.append((rows.read(name).system, points))
    return out


def by_step(results: Results, width: int) -> list[tuple[str, list[tuple[float, float]]]]:
    """Each system's perplexity on the training text, mean over seeds, by step."""
    out = []
    for name in STUDIED:
        found = results.get(at(name, width), [])
        losses = [statistics.mean(part) for part in zip(*(r["curve"] for r in found))]
        step = found[0]["steps"] / len(losses) if losses else 0
        if losses:  # the first points are far above the others
            out.append((rows.read(name).system, [((i + 1) * step, math.exp(v)) for i, v in enumerate(losses)][len(losses) // 4 :]))
    return out


def write(results: Results, folder: Path) -> list[str]:
    """Writes the figures whose rows are run; returns their names."""
    drawn = {}
    curves, charts = by_width(results), _charts()
    if len({w for _, points in curves for w, _ in points}) > 1:
        drawn["results-width.svg"] = "width of the model", "perplexity, SMoE = 1", curves, True
    for width in WIDTHS:
        if len(curves := by_step(results, width)) > 1:
            drawn[f"results-steps-{width}.svg"] = "step", "perplexity in training", curves, True
    for name, (x, y, curves, log_x) in drawn.items():
        chart = charts.Chart(x, y, [charts.Curve(*c) for c in curves], log_x=log_x)
        (folder / name).write_text(chart.svg(alone=True), encoding="utf-8")
    return list(drawn)
