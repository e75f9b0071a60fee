# SPDX-License-Identifier: MIT
"""The charts of an analysis, what each means, and a page of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from .charts import STYLE, Chart, Curve, figure, text
from .runs import Analysis, Layer, Recording, SweepRow

HEAD = """<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<style>
body{margin:2rem auto;padding:0 1rem;max-width:52rem;background:var(--back);color:var(--text);
font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2rem 0 .3rem}
p{margin:.3rem 0;color:var(--quiet)}svg{width:100%;height:auto;display:block}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}summary{color:var(--quiet)}
th,td{padding:.15rem .9rem;text-align:right;border-bottom:1px solid var(--line)}
"""

Table = list[list[str]]


@dataclasses.dataclass
class Section:
    name: str  # of its chart's file
    title: str
    meaning: str
    chart: Chart | None  # None: `meaning` says why there is none
    table: Table


def _names(a: Analysis) -> list[str]:
    """A name for each model, none twice."""
    names = [r.name for r in a.models]
    return names if len(set(names)) == len(names) else [f"checkpoint {i + 1}" for i in range(len(names))]


def _of_layers(layers: Sequence[Layer], value: Sequence[float], name: str = "") -> Curve:
    return Curve(name, [(x.layer, v) for x, v in zip(layers, value)])


def mean_needed(layer: Layer, threshold: float) -> float:
    counts = layer.needed[threshold]
    return float(np.arange(len(counts)) @ counts / counts.sum())


def _needed(a: Analysis) -> Section:
    layers = a.models[-1].layers
    thresholds = list(layers[0].needed)
    meaning = ("How many experts a token needs until their probabilities, from the largest down, reach the "
               "threshold, on average (XMoE, fig. 5). The text was read with the model's own router.")
    if not thresholds:
        return Section("needed", "Experts needed", "This router takes no softmax over all experts, so no "
                       "threshold can be set.", None, [])
    curves = [Curve(f"layer {x.layer}", [(t, mean_needed(x, t)) for t in thresholds]) for x in layers]
    table = [["threshold", *(c.name for c in curves)]]
    table += [[f"{t:g}", *(f"{c.points[i][1]:.2f}" for c in curves)] for i, t in enumerate(thresholds)]
    return Section("needed", "Experts needed", meaning,
                   Chart("threshold", "experts a token", curves, from_zero=True), table)


def _spread(a: Analysis, threshold: float) -> Section:
    layers = a.models[-1].layers
    curves, table = [], [["experts", *(f"layer {x.layer}" for x in layers)]]
    shares = [x.needed[threshold] / x.needed[threshold].sum() for x in layers]
    most = max(int(np.flatnonzero(s)[-1]) for s in shares)
    curves = [Curve(f"layer {x.layer}", [(n, float(s[n])) for n in range(1, most + 1)])
              for x, s in zip(layers, shares)]
    table += [[str(n), *(f"{100 * s[n]:.1f} %" for s in shares)] for n in range(1, most + 1)]
    return Section("spread", f"Tokens by experts needed, threshold {threshold:g}",
                   "Which share of the tokens needs so many experts: easy tokens need few (XMoE, fig. 5).",
                   Chart("experts needed", "share of tokens", curves, from_zero=True, share=True, whole=True), table)


def _kinds(rows: Sequence[SweepRow]) -> Iterator[tuple[str, list[SweepRow]]]:
    for kind in ("threshold", "topk"):
        found = [row for row in rows if row.router.startswith(kind + ":")]
        if found:
            yield ("top-k" if kind == "topk" else kind), found


def _sweep_table(rows: Sequence[SweepRow]) -> Table:
    table = [["router", "perplexity", "experts", "MFLOP/token", "positive", "µs/token", "decoded µs/token"]]
    return table + [[r.router, f"{r.perplexity:.4f}", f"{r.experts:.3f}", f"{r.flops * 1e-6:.3f}",
                     f"{100 * r.positive:.1f} %", f"{r.seconds * 1e6:.1f}", f"{r.decode_seconds * 1e6:.1f}"]
                    for r in rows]


def _swept(a: Analysis) -> Iterator[Section]:
    flops = "MFLOP of the experts, a token"

    def curves(value: str, scale: float = 1.0) -> list[Curve]:
        return [Curve(name, [(r.flops * 1e-6, getattr(r, value) * scale)
                             for r in sorted(rows, key=lambda r: r.flops)]) for name, rows in _kinds(a.sweep)]

    yield Section("perplexity", "Perplexity by operations",
                  "The same weights under other routers: what the experts compute for a token, and how well the "
                  "text is predicted (XMoE, fig. 4 and 7).",
                  Chart(flops, "perplexity", curves("perplexity"), log_x=True), _sweep_table(a.sweep))
    yield Section("batch-time", "Time of a batch by operations",
                  "Time to evaluate a token of the text in chunks, many tokens at once (XMoE, fig. 8). It includes "
                  "attention and the rest of the model; the operations are those of the experts alone.",
                  Chart(flops, "µs a token of a chunk", curves("seconds", 1e6), from_zero=True), [])
    yield Section("time", "Time of decoding by operations",
                  "The same for a token decoded alone after those before it, where reading the weights counts.",
                  Chart(flops, "µs a decoded token", curves("decode_seconds", 1e6), from_zero=True), [])
    yield Section("positive", "Positive activations by operations",
                  "Which share of what experts compute inside is above zero; with ReLU the rest is computed for "
                  "nothing (XMoE, fig. 1 and 6).",
                  Chart(flops, "above zero", curves("positive"), log_x=True, from_zero=True, share=True), [])


def _activations(a: Analysis) -> Section:
    routed, names = {x.layer for x in a.models[-1].layers}, _names(a)
    curves = [Curve(n, [(i, v) for i, v in r.positive.items()]) for n, r in zip(names, a.models)]
    table = [["layer", "", *names]]
    table += [[str(i), "experts" if i in routed else "dense",
               *(f"{100 * r.positive[i]:.1f} %" if i in r.positive else "" for r in a.models)]
              for i in a.models[-1].positive]
    return Section("activations", "Positive activations by layer",
                   "Which share of what FFNs compute inside is above zero, dense ones and experts (XMoE, fig. 1 and "
                   "6). The text was read with the model's own router.",
                   Chart("layer", "above zero", curves, from_zero=True, share=True, whole=True), table)


def _load(a: Analysis) -> Section:
    layers = a.models[-1].layers
    sorted_ = [np.sort(x.load / max(1, x.load.sum()) * x.n_experts)[::-1] for x in layers]
    curves = [Curve(f"layer {x.layer}", [(float(i + 1), float(v)) for i, v in enumerate(s)])
              for x, s in zip(layers, sorted_)]
    table = [["", *(c.name for c in curves)],
             ["most", *(f"{s[0]:.2f}" for s in sorted_)], ["least", *(f"{s[-1]:.2f}" for s in sorted_)],
             ["unused", *(str(int(np.sum(x.load == 0))) for x in layers)]]
    return Section("load", "Load", "How often each expert was taken, from the busiest to the idlest, in times "
                   "of an even share.", Chart("expert, by load", "times the even share", curves, from_zero=True,
                                               whole=True), table)


def _layer_table(names: Sequence[str], layers: Sequence[Layer], values: Sequence[Sequence[float]]) -> Table:
    return [["layer", *names]] + [[str(x.layer), *(figure(v[i]) for v in values)] for i, x in enumerate(layers)]


def _collapse(a: Analysis) -> Section:
    names = _names(a)
    values = [[x.collapse for x in r.layers] for r in a.models]
    curves = [_of_layers(r.layers, v, n) for n, r, v in zip(names, a.models, values)]
    return Section("collapse", "Representation collapse",
                   "Tr(S_W S_B^+) of the router's input, grouped by each token's first expert (X-MoE, eq. 11): the "
                   "smaller, the more the states of an expert have collapsed.",
                   Chart("layer", "RC", curves, from_zero=True, whole=True),
                   _layer_table(names, a.models[-1].layers, values))


def _fluctuation(a: Analysis) -> Section:
    layers = a.models[-1].layers
    steps = [f"{i + 1} to {i + 2}" for i in range(len(a.fluctuation))]
    curves = [Curve(f"layer {x.layer}", [(j + 2.0, f[i]) for j, f in enumerate(a.fluctuation)])
              for i, x in enumerate(layers)]
    return Section("fluctuation", "Routing fluctuation",
                   "Which share of the tokens goes first to another expert than at the checkpoint before (X-MoE, "
                   "fig. 3a).",
                   Chart("checkpoint", "tokens that moved", curves, from_zero=True, share=True, whole=True),
                   _layer_table(steps, layers, a.fluctuation))


def _runs_section(a: Analysis, values: list[list[float]], name: str, title: str, meaning: str) -> Section:
    """A figure per layer of the last checkpoint and each other run, and the mean over the runs."""
    layers, names = a.models[-1].layers, [f"run {i + 2}" for i in range(len(a.others))]
    curves = [_of_layers(layers, v, n) for n, v in zip(names, values)]
    mean = [float(np.mean(v)) for v in zip(*values)]
    table = _layer_table([*names, "mean"], layers, [*values, mean])
    return Section(name, title, meaning, Chart("layer", "correlation", curves, from_zero=True, whole=True), table)


def _consistency(a: Analysis) -> Iterator[Section]:
    yield _runs_section(a, a.load_consistency, "load-consistency", "Consistency of loads between runs",
                        "Pearson correlation of the experts' loads in both runs, in order of size (X-MoE, fig. 3b). 1: "
                        "the same distribution of loads.")
    yield _runs_section(a, a.consistency, "consistency", "Consistency of groups between runs",
                        "Over all pairs of tokens, the correlation of going to one expert in both runs. 1: the same "
                        "groups of tokens; 0: as by chance.")


def sections(a: Analysis) -> list[Section]:
    """The report's sections; a comparison only where there is something to compare."""
    if not a.models[-1].layers:
        return [_activations(a)]
    thresholds = list(a.models[-1].layers[0].needed)
    below = [t for t in thresholds if t < 1]
    found = [_needed(a)]
    if below:
        found.append(_spread(a, max(below)))
    if a.sweep:
        found += _swept(a)
    found += [_activations(a), _load(a), _collapse(a)]
    if a.fluctuation:
        found.append(_fluctuation(a))
    if a.consistency:
        found += _consistency(a)
    return found


def _html_table(rows: Table) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{text(v)}</th>" for v in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{text(v)}</td>" for v in row) + "</tr>\n" for row in rows[1:])
    return f"<details><summary>Figures</summary><table>\n<tr>{head}</tr>\n{body}</table></details>\n"


def _html_section(s: Section) -> str:
    chart = s.chart.svg() if s.chart is not None and not s.chart.empty else ""
    return f"<h2>{text(s.title)}</h2>\n<p>{text(s.meaning)}</p>\n{chart}{_html_table(s.table)}"


def summary(r: Recording) -> str:
    experts = ", ".join(f"layer {x.layer}: {x.experts:.2f} of {x.n_experts}" for x in r.layers)
    routing = f"experts a token took: {experts}" if experts else "every layer is dense"
    return f"{r.n_tokens} tokens, perplexity {r.perplexity:.4f}; {routing}"


def html_page(title: str, first: str, parts: Iterable[str]) -> str:
    """One HTML page that needs nothing else: a title, a first line, and parts as HTML."""
    return (f"<!doctype html>\n<html lang=\"en\">\n<title>{text(title)}</title>\n{HEAD}{STYLE}</style>\n"
            f"<h1>{text(title)}</h1>\n<p>{text(first)}</p>\n" + "".join(parts) + "</html>\n")


def page(a: Analysis) -> str:
    """One HTML page that needs nothing else."""
    title = ("Routing of " if a.models[-1].layers else "Activations of ") + a.models[-1].name
    return html_page(title, summary(a.models[-1]), map(_html_section, sections(a)))


def tables(a: Analysis) -> str:
    """The figures as text."""
    shown = [s for s in sections(a) if s.table or s.chart is None]
    return "\n\n".join([summary(a.models[-1]), *map(_text_section, shown)])


def _text_section(s: Section) -> str:
    return "\n".join([s.title, *(map(_line, _widened(s.table)) if s.table else [f"  {s.meaning}"])])


def _widened(rows: Table) -> Table:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [[v.rjust(w) for v, w in zip(row, widths)] for row in rows]


def _line(row: Sequence[str]) -> str:
    return "  " + "  ".join(row)
