# SPDX-License-Identifier: MIT
"""Whether one system is better than another: differences paired by seed and window, and one rule for all claims.

Two systems see the same windows and, with equal seeds, the same batches, so their losses are compared seed by seed and
window by window. Both seeds and windows are samples of what could have been taken, so the standard error counts the
variance over each (with Satterthwaite's degrees of freedom). The claims of a table are a family, and Holm's
method keeps the chance of a single false verdict in it at LEVEL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.05
SEEN, CONTRADICTED, UNDECIDED, UNTESTED = "seen", "contradicted", "not decided", "not tested"
Losses = Sequence[Sequence[float]]  # a list per seed, a number per window


@dataclass(frozen=True)
class Test:
    effect: float  # mean loss of the system that the claim calls worse minus that of the other
    error: float  # its standard error
    df: float
    n_seeds: int

    @property
    def t(self) -> float:
        if self.error > 0:
            return self.effect / self.error
        return math.copysign(math.inf, self.effect) if self.effect else 0.0  # equal systems

    @property
    def p(self) -> float:
        """The chance of such a |t| or a larger one if the systems are equal."""
        return two_sided(self.t, self.df)

    def interval(self) -> tuple[float, float]:
        """Where the effect lies with a confidence of 1 - LEVEL, for this claim alone."""
        reach = quantile(LEVEL, self.df) * self.error
        return self.effect - reach, self.effect + reach


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (Lentz's method)."""
    tiny, c, d = 1e-300, 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    out = d
    for m in range(1, 400):
        for top in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                    -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d, c = 1.0 + top * d, 1.0 + top / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            out *= d * c
        if abs(d * c - 1.0) < 1e-13:
            break
    return out


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def two_sided(t: float, df: float) -> float:
    """The chance that Student's t with df degrees of freedom is at least |t| away from 0."""
    return 0.0 if math.isinf(t) else _incomplete_beta(df / 2, 0.5, df / (df + t * t))


def quantile(level: float, df: float) -> float:
    """The t with two_sided(t, df) = level."""
    low, high = 0.0, 1.0
    while two_sided(high, df) > level:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, df) > level else (low, middle)
    return (low + high) / 2


def _squares(values: Sequence[float], around: float) -> float:
    return sum((v - around) ** 2 for v in values)


def compare(better: Losses, worse: Losses) -> Test | None:
    """The paired test of two systems whose seeds and windows are in the same order; None: fewer than two seeds."""
    n_seeds, n_windows = len(better), len(better[0]) if better else 0
    if len(worse) != n_seeds or any(len(w) != n_windows for w in (*better, *worse)):
        raise ValueError("expected the same seeds and windows of both systems")
    if n_seeds < 2 or n_windows < 2:
        return None
    d = [[b - a for a, b in zip(x, y, strict=True)] for x, y in zip(better, worse, strict=True)]
    of_seeds = [sum(row) / n_windows for row in d]
    of_windows = [sum(column) / n_seeds for column in zip(*d, strict=True)]
    mean = sum(of_seeds) / n_seeds
    seeds, windows = n_seeds - 1, n_windows - 1
    parts = (_squares(of_seeds, mean) / (seeds * n_seeds), _squares(of_windows, mean) / (windows * n_windows))
    # The sum counts what seeds and windows do together twice. Without that, and with few seeds, chance would
    # make the error too small too often.
    variance = sum(parts)
    freedom = parts[0] ** 2 / seeds + parts[1] ** 2 / windows
    return Test(mean, math.sqrt(variance), variance**2 / freedom if freedom > 0 else seeds, n_seeds)


def verdicts(tests: Sequence[Test | None]) -> list[str]:
    """A verdict per claim of a family that is fixed beforehand, by Holm's method. Claims that are not tested yet count as the
    least clear ones, so that no verdict is withdrawn when they are."""
    out = [UNTESTED if t is None else UNDECIDED for t in tests]
    found = sorted((t.p, i) for i, t in enumerate(tests) if t is not None)
    for rank, (p, i) in enumerate(found):
        if p > LEVEL / (len(tests) - rank):
            break
        out[i] = SEEN if tests[i].effect > 0 else CONTRADICTED
    return out
