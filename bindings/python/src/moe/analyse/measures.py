# SPDX-License-Identifier: MIT
"""The figures that the papers measure routing by, of arrays alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError, ShapeError

Array = npt.NDArray[Any]


class Collapse:
    """Representation collapse, summed up piece by piece: Tr(S_W S_B^+) (X-MoE, eq. 11; Zhu et al.
    2021). S_W is the covariance of hidden states within the expert that they go to first, averaged
    over tokens; S_B that of the experts' means around the mean of all tokens, averaged over the
    experts that have tokens. The smaller, the more have the states of an expert become one."""

    def __init__(self, n_experts: int, d: int) -> None:
        self._counts = np.zeros(n_experts)
        self._sums = np.zeros((n_experts, d))
        self._squares = np.zeros((d, d))
        self._origin: Array | None = None  # near the mean, so that little is lost in differences

    def add(self, hidden: Array, experts: Array) -> None:
        """hidden (n, d), experts (n): where each goes first."""
        if hidden.ndim != 2 or experts.shape != hidden.shape[:1] or hidden.shape[1] != self._sums.shape[1]:
            raise ShapeError(f"expected hidden states (n, {self._sums.shape[1]}) and experts (n), found "
                             f"{hidden.shape} and {experts.shape}")
        if len(hidden) == 0:
            return
        if self._origin is None:
            self._origin = hidden.mean(axis=0, dtype=np.float64)
        states = hidden - self._origin
        self._counts += np.bincount(experts, minlength=len(self._counts))
        np.add.at(self._sums, experts, states)
        self._squares += states.T @ states

    def value(self) -> float:
        """nan with fewer than two experts that have tokens."""
        used, n = self._counts > 0, self._counts.sum()
        if used.sum() < 2:
            return float("nan")
        counts, sums = self._counts[used], self._sums[used]
        means = sums / counts[:, None]
        within = (self._squares - means.T @ sums) / n
        around = means - sums.sum(axis=0) / n
        between = around.T @ around / len(means)
        rcond = len(between) * np.finfo(np.float64).eps
        return float(np.sum(within * np.linalg.pinv(between, rcond=rcond, hermitian=True)))


def representation_collapse(hidden: Array, experts: Array) -> float:
    """The collapse of hidden states (n, d) that go to experts (n) first; see Collapse."""
    experts = np.asarray(experts)
    collapse = Collapse(int(experts.max(initial=0)) + 1, np.shape(hidden)[-1])
    collapse.add(np.asarray(hidden), experts)
    return collapse.value()


def _same_tokens(first: Array, second: Array) -> tuple[Array, Array]:
    first, second = np.asarray(first), np.asarray(second)
    if first.ndim != 1 or first.shape != second.shape:
        raise ShapeError(f"expected the experts of the same tokens, found {first.shape} and {second.shape}")
    if len(first) < 2:
        raise ArgumentError(f"expected two tokens or more, found {len(first)}")
    return first, second


def fluctuation(before: Array, after: Array) -> float:
    """The share of tokens that go to another expert than before (X-MoE, fig. 3a): experts (n) of the
    same tokens at two checkpoints of one run."""
    before, after = _same_tokens(before, after)
    return float(np.mean(before != after))


def _pairs(counts: Array) -> float:
    n = counts.astype(np.float64)
    return float(np.sum(n * (n - 1)) / 2)


def load_consistency(first: Array, second: Array) -> float:
    """Inter-run consistency (X-MoE, section 4.5, fig. 3b): the Pearson correlation of the loads (N) of
    one layer's experts in two runs. The numbers of experts mean nothing between runs, so the loads are
    compared in order of size. nan where all experts of a run have the same load."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise ShapeError(f"expected the loads of as many experts, found {first.shape} and {second.shape}")
    if len(first) < 2:
        raise ArgumentError(f"expected two experts or more, found {len(first)}")
    a, b = (np.sort(loads) - loads.mean() for loads in (first, second))
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread > 0 else float("nan")


def consistency(first: Array, second: Array) -> float:
    """Whether two runs put the same tokens together, whatever the numbers of their experts; not in the
    papers, and stricter than load_consistency. Over all pairs of tokens, the correlation of "one expert in the first run" with "one
    expert in the second". 1: the same groups; 0: as by chance; nan where a run has one group."""
    first, second = _same_tokens(first, second)
    _, a = np.unique(first, return_inverse=True)
    _, b = np.unique(second, return_inverse=True)
    n = len(a) * (len(a) - 1) / 2
    in_a, in_b = _pairs(np.bincount(a)) / n, _pairs(np.bincount(b)) / n
    in_both = _pairs(np.bincount(a * (int(b.max()) + 1) + b)) / n
    spread = in_a * (1 - in_a) * in_b * (1 - in_b)
    return (in_both - in_a * in_b) / float(np.sqrt(spread)) if spread > 0 else float("nan")


def probabilities(scores: Array) -> Array:
    """softmax over the last axis, in double precision."""
    z = scores.astype(np.float64)
    z = np.exp(z - z.max(axis=-1, keepdims=True))
    p: Array = z / z.sum(axis=-1, keepdims=True)
    return p


def needed(p: Array, threshold: float) -> Array:
    """How many experts each token needs until their probabilities p (n, N), from the largest down,
    reach the threshold (XMoE, eq. 5; fig. 5); all of them from 1 on."""
    if not 0 <= threshold <= 1:
        raise ArgumentError(f"threshold: expected 0 to 1, found {threshold:g}")
    if threshold >= 1:
        return np.full(len(p), p.shape[-1])
    total = np.cumsum(-np.sort(-p, axis=-1), axis=-1)
    counts: Array = 1 + np.sum(total[:, :-1] < threshold, axis=-1)
    return counts
