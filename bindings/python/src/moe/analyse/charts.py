# SPDX-License-Identifier: MIT
"""Charts as SVG, in the colours of the page's classes: s0 to s5 for curves, l0 to l4 for levels of a heat map."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterator, Sequence

LEFT, TOP, WIDTH, HEIGHT, NAMES = 76, 14, 560, 230, 150
N_STYLES = 6
N_LEVELS = 5
NAME_HEIGHT = 15
MOST_DOTS = 60  # more points on a curve have no dots
MOST_POINTS = 600  # more points of a series are averaged

STYLE = """
:root{--back:#fff;--text:#1f2328;--quiet:#59636e;--line:#d1d9e0;--empty:#f0f2f4;
--l0:#cfe2f7;--l1:#a9cbf0;--l2:#6aa3e0;--l3:#2f74c0;--l4:#12407a;
--s0:#1a5fb4;--s1:#0b7a6f;--s2:#b3560a;--s3:#a3185f;--s4:#5b3fb5;--s5:#556b00}
@media(prefers-color-scheme:dark){:root{--back:#0f1419;--text:#e6edf3;--quiet:#9aa5b1;--line:#36404a;--empty:#1b2128;
--l0:#16324f;--l1:#1d528a;--l2:#2f7ac4;--l3:#6cadea;--l4:#cfe6ff;
--s0:#79b0f5;--s1:#4fd1c0;--s2:#f0a45d;--s3:#f08cc0;--s4:#b7a3ff;--s5:#b8d04a}}
svg text{font:13px system-ui,sans-serif;fill:var(--quiet)}
svg .name{font-weight:600}.grid{stroke:var(--line);fill:none}.mark{stroke:var(--quiet);stroke-dasharray:3 3}
.curve{fill:none;stroke-width:2;stroke-linejoin:round}.back{fill:var(--back)}.empty{fill:var(--empty)}
""" + "".join(f".l{i}{{fill:var(--l{i})}}\n" for i in range(N_LEVELS)) + "".join(
    f".s{i}{{stroke:var(--s{i})}}svg .name.s{i},.dot.s{i}{{fill:var(--s{i});stroke:none}}\n"
              for i in range(N_STYLES))


@dataclasses.dataclass
class Curve:
    name: str
    points: Sequence[tuple[float, float]]


def series(name: str, values: Sequence[float]) -> Curve:
    """A curve over 0, 1, 2 ...; of many values the means of neighbours."""
    n = min(len(values), MOST_POINTS)
    parts = [values[i * len(values) // n:(i + 1) * len(values) // n] for i in range(n)]
    each = (len(values) - 1) / max(1, n - 1)
    return Curve(name, [(i * each, sum(part) / len(part)) for i, part in enumerate(parts)])


def text(value: str) -> str:
    """For any place in a page: markup is spelled out, control characters become '?'."""
    return html.escape("".join(c if c.isprintable() else "?" for c in value))


def figure(value: float) -> str:
    """A number with three digits that count, and no exponent for what people read."""
    if not math.isfinite(value):
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.2g}"


def _steps(low: float, high: float, n: int, whole: bool) -> list[float]:
    """Round numbers from low to high, about n of them; `whole`: none between two whole ones."""
    range_ = high - low
    ten = 10.0 ** math.floor(math.log10(range_ / n))
    step = next(times * ten for times in (1, 2, 5, 10) if range_ / (times * ten) <= n)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _tens(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten from low to high."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [times * 10.0**p for p in powers for times in (1, 2, 5)]
    return [v for v in found if low * 0.999 <= v <= high * 1.001]


class Axis:
    """Where values lie between two ends, 0 to 1."""

    def __init__(self, name: str, values: Sequence[float], log: bool = False, zero: bool = False,
                 share: bool = False, whole: bool = False) -> None:
        self.name, self.share, self.whole = name, share, whole
        low, high = min(values), max(values)
        self.log = log and low > 0
        if zero and not self.log:
            low = min(low, 0.0)
        if high - low <= 1e-9 * max(abs(high), 1e-9):
            low, high = low - (abs(low) * 0.1 or 1), high + (abs(high) * 0.1 or 1)
        self.low, self.high = self._scaled(low), self._scaled(high)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def at(self, value: float) -> float:
        return (self._scaled(value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        ends = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        values = _tens(*ends) if self.log else []
        if len(values) < 3:
            values = _steps(*ends, 6, self.whole)
        return [(v, f"{100 * v:g} %" if self.share else figure(v)) for v in values]


def _label(x: float, y: float, anchor: str, value: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(value)}</text>\n'


def _axis_names(x_name: str, y_name: str, width: float, height: float) -> str:
    return (_label(LEFT + width / 2, TOP + height + 40, "middle", x_name) +
            f'<text transform="translate(14 {TOP + height / 2:.0f}) rotate(-90)" text-anchor="middle">'
            f"{text(y_name)}</text>\n")


class Chart:
    """Curves through points, with a dot at each."""

    def __init__(self, x_name: str, y_name: str, curves: Sequence[Curve], *, log_x: bool = False,
                 from_zero: bool = False, top: float | None = None, share: bool = False, whole: bool = False,
                 mark: tuple[float, str] | None = None) -> None:
        """log_x: a logarithmic axis; from_zero, top: the axis of values reaches 0, this value; share: they
        are percentages; whole: what stands below is counted; mark: a line at this place, with a name."""
        self.curves = [c for c in curves if any(map(_is_finite, c.points))]
        points = [p for c in self.curves for p in c.points if _is_finite(p)]
        self.empty, self.mark = not points, mark
        if not self.empty:
            values = [p[1] for p in points] + ([] if top is None else [top])
            self.x = Axis(x_name, [p[0] for p in points], log=log_x, whole=whole)
            self.y = Axis(y_name, values, zero=from_zero, share=share)

    def _place(self, point: tuple[float, float]) -> tuple[float, float]:
        return LEFT + WIDTH * self.x.at(point[0]), TOP + HEIGHT * (1 - self.y.at(point[1]))

    def _grid(self) -> Iterator[str]:
        for value, name in self.y.ticks():
            y = TOP + HEIGHT * (1 - self.y.at(value))
            yield f'<path class="grid" d="M{LEFT} {y:.1f}h{WIDTH}"/>\n' + _label(LEFT - 8, y + 4, "end", name)
        for value, name in self.x.ticks():
            yield _label(LEFT + WIDTH * self.x.at(value), TOP + HEIGHT + 20, "middle", name)
        yield _axis_names(self.x.name, self.y.name, WIDTH, HEIGHT)
        if self.mark is not None:
            x = LEFT + WIDTH * self.x.at(self.mark[0])
            yield f'<path class="mark" d="M{x:.1f} {TOP}v{HEIGHT}"/>\n'
            yield _label(x + 5, TOP + HEIGHT - 6, "start", self.mark[1])

    def _curve(self, index: int, curve: Curve) -> str:
        style = index * N_STYLES // max(N_STYLES, len(self.curves))
        places = [self._place(p) for p in curve.points if _is_finite(p)]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        values = " ".join(f"{x:.6g},{y:.6g}" for x, y in curve.points)
        dots = "" if len(places) > MOST_DOTS else "".join(
            f'<circle class="dot s{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
        return (f'<path class="curve s{style}" data-name="{text(curve.name)}" data-values="{values}" '
                f'd="M{line}"/>{dots}\n')

    def _names(self) -> Iterator[str]:
        """At the end of each curve, without one over another; of many, as many as there is room for."""
        every = -(-len(self.curves) // (HEIGHT // NAME_HEIGHT))
        ends = sorted((self._place([p for p in c.points if _is_finite(p)][-1])[1], i, c.name)
                      for i, c in enumerate(self.curves) if i % every == 0)
        heights = [y for y, _, _ in ends]
        for i in range(1, len(heights)):
            heights[i] = max(heights[i], heights[i - 1] + NAME_HEIGHT)
        heights[-1] = min(heights[-1], TOP + HEIGHT)
        for i in range(len(heights) - 2, -1, -1):
            heights[i] = min(heights[i], heights[i + 1] - NAME_HEIGHT)
        for y, (_, index, name) in zip(heights, ends):
            style = index * N_STYLES // max(N_STYLES, len(self.curves))
            yield f'<text class="name s{style}" x="{LEFT + WIDTH + 10}" y="{y + 4:.1f}">{text(name)}</text>\n'

    def svg(self, alone: bool = False) -> str:
        """For a page, or with colours of its own as a file."""
        own = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
        width, height = LEFT + WIDTH + NAMES, TOP + HEIGHT + 50
        style = (f"<style>{STYLE}</style>\n<rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n"
                 if alone else "")
        curves = "".join(self._curve(i, c) for i, c in enumerate(self.curves))
        return (f'<svg{own} viewBox="0 0 {width} {height}" role="img">\n{style}{"".join(self._grid())}{curves}'
                f'{"".join(self._names())}</svg>\n')


def _is_finite(point: tuple[float, float]) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


@dataclasses.dataclass
class HeatMap:
    """Cells of a table with a colour for each level, l0 to l4; cells that are not listed are empty."""
    x_name: str
    y_name: str
    n_columns: int
    n_rows: int
    levels: Sequence[str]  # their names
    cells: Sequence[tuple[int, int, int]]  # column, row, level

    def svg(self) -> str:
        width = WIDTH + NAMES / 2
        cell = width / self.n_columns
        row = min(max(420 / self.n_rows, min(cell, 6.0)), 16.0)
        height = row * self.n_rows
        paths = [""] * len(self.levels)
        for x, y, level in self.cells:
            paths[level] += f"M{x} {y}h1v1h-1z"
        drawn = "".join(f'<path class="l{i}" d="{d}"/>\n' for i, d in enumerate(paths) if d)
        labels = [_label(LEFT + cell * (v + 0.5), TOP + height + 20, "middle", f"{v:g}")
                  for v in _steps(0, self.n_columns - 1 or 1, 16, True) if v < self.n_columns]
        labels += [_label(LEFT - 8, TOP + row * (v + 0.5) + 4, "end", f"{v:g}")
                   for v in _steps(0, self.n_rows - 1 or 1, max(2, int(height / NAME_HEIGHT)), True) if v < self.n_rows]
        return (f'<svg viewBox="0 0 {LEFT + WIDTH + NAMES} {TOP + height + 76:.0f}" role="img">\n'
                f'<g transform="translate({LEFT} {TOP}) scale({cell:.4f} {row:.4f})">'
                f'<path class="empty" d="M0 0h{self.n_columns}v{self.n_rows}h-{self.n_columns}z"/>\n{drawn}</g>\n'
                f'{"".join(labels)}{_axis_names(self.x_name, self.y_name, width, height)}'
                f'{"".join(self._legend(TOP + height + 50))}</svg>\n')

    def _legend(self, y: float) -> Iterator[str]:
        x = float(LEFT)
        for i, name in enumerate(self.levels):
            yield f'<rect class="l{i}" x="{x:.1f}" y="{y:.1f}" width="14" height="14"/>'
            yield _label(x + 20, y + 12, "start", name)
            x += 36 + 7.2 * len(name)
