# SPDX-License-Identifier: MIT
"""python -m moe trace: a page of a routing trace, drawn from the figures that `moe trace --curves` writes."""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

from .._replacing import write_text
from ..errors import ArgumentError
from .charts import Chart, HeatMap, series, text
from .report import html_page

_LEVELS = (0.5, 1, 2, 4)  # upper ends, in times of the even share
_LEVEL_NAMES = ("up to half", "to 1", "to 2", "to 4", "more than 4 times the even share")
_MOST_CURVES = 4

Figures = dict[str, Any]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m moe trace",
        description="Draws a routing trace: uses of each expert, experts per token, hit rate by memory, memory over "
                    "time. moe trace TRACE.csv --curves FIGURES.json writes the figures.")
    parser.add_argument("figures", metavar="FIGURES.json", help="the figures of a trace")
    parser.add_argument("-o", "--output", required=True, metavar="PAGE.html", help="the page")
    return parser


def _heat_map(f: Figures) -> HeatMap:
    uses: list[tuple[int, int, int]] = [(layer, expert, n) for layer, expert, n in f["uses_of_experts"]]
    all_uses = [0] * f["n_layers"]
    for layer, _, n in uses:
        all_uses[layer] += n
    cells = []
    for layer, expert, n in uses:
        times = n * f["n_experts"] / all_uses[layer]
        cells.append((expert, layer, sum(times > end for end in _LEVELS)))
    return HeatMap("expert", "layer", f["n_experts"], f["n_layers"], _LEVEL_NAMES, cells)


def _section(title: str, meaning: str, body: str) -> str:
    return f"<h2>{text(title)}</h2>\n<p>{text(meaning)}</p>\n{body}"


def _table(f: Figures) -> str:
    rows = "".join(f"<tr><td>{100 * b['share']:g} %</td><td>{b['experts']:d}</td><td>{b['lru']:.3f}</td>"
                   f"<td>{b['best']:.3f}</td></tr>\n" for b in f["budgets"])
    return ("<table>\n<tr><th>memory for</th><th>experts</th><th>LRU</th><th>best possible</th></tr>\n"
            f"{rows}</table>\n")


def _found(f: Figures) -> Chart:
    drawn = [b for b in f["budgets"] if b["experts"] > 0][:_MOST_CURVES]
    curves = [series(f"{100 * b['share']:g} % in memory", b["found"]) for b in drawn]
    return Chart("decoded token", "found", curves, from_zero=True, top=1, share=True, whole=True)


def _parts(f: Figures) -> list[str]:
    window, n_prompt = f["window"], f["prompt_tokens"]
    mark = (n_prompt - 0.5, "decoding") if n_prompt > 0 else None
    per_token = Chart("token", "experts", [series("experts", f["experts_per_token"])], from_zero=True,
                      top=f["n_experts_used"], whole=True, mark=mark)
    memory = Chart("token", "share of all", [series("so far", f["used_so_far"]),
                                             series(f"last {window} tokens", f["used_lately"])],
                   from_zero=True, top=1, share=True, whole=True, mark=mark)
    return [
        _section("Uses of each expert", "How often a layer used an expert, relative to the average over its experts. "
                 "Empty: never.", _heat_map(f).svg()),
        _section("Experts per token", "Mean over the layers.", per_token.svg()),
        _section("Found in memory while decoding", f"Hit rate over the last {window} tokens of an LRU cache with room "
                 "for this share of all experts.", _found(f).svg()),
        _section("The same over all decoded tokens", "Best possible: evicts the expert whose next use is furthest "
                 f"away. First uses, which miss in every cache: {f['first_uses']:.3f}.", _table(f)),
        _section("Memory over time", "Experts used so far, as a share of all (what a cache that never evicts holds), "
                 f"and experts used by the last {window} tokens.", memory.svg()),
    ]


def trace_page(figures: Figures) -> str:
    """The page of the figures that `moe trace --curves` writes; ArgumentError if they are something else."""
    try:
        first = (f"Layers: {figures['n_layers']:d}, each of {figures['n_experts']:d} experts, of which a token takes "
                 f"at most {figures['n_experts_used']:d}. Tokens: {figures['prompt_tokens']:d} of the text, "
                 f"{figures['decoded_tokens']:d} decoded after it.")
        return html_page(str(figures["trace"]), first, _parts(figures))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as e:
        raise ArgumentError("expected figures that moe trace --curves wrote, found others "
                            f"({type(e).__name__}: {e})") from None


def run(arguments: list[str]) -> None:
    """The command; raises MoeError, OSError and ValueError."""
    options = _parser().parse_args(arguments)
    data = pathlib.Path(options.figures).read_bytes()
    try:
        figures = json.loads(data)
    except (ValueError, RecursionError):
        raise ArgumentError(f"{options.figures}: expected JSON that moe trace --curves wrote") from None
    try:
        page = trace_page(figures)
    except ArgumentError as e:
        raise ArgumentError(f"{options.figures}: {e}") from None
    write_text(options.output, page)
