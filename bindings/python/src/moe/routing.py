# SPDX-License-Identifier: MIT
"""Routing decisions, as reported by Session.watch_routing()."""

from __future__ import annotations

import dataclasses
from typing import Any
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ._arrays import FloatArray, IntArray
from .errors import ShapeError


@dataclasses.dataclass(frozen=True)
class RoutingChoices:
    """The choices of one MoE layer for the tokens of one pass; of MH-MoE each token has as many
    rows as the layer has sub-heads. The arrays are copies and may be kept. What the callback writes
    into the first three until it returns is what the model then uses."""

    layer: int
    position: int  # of the first token in the text; the others follow it
    counts: IntArray  # (n,): experts taken
    experts: IntArray  # (n, slots), best first; beyond the count anything
    weights: FloatArray  # (n, slots)
    hidden: FloatArray  # (n, d): what the router read, after the norm in front of the layer
    scores: FloatArray | None  # (n, n_experts): logits or cosines; None of a router by token


Watcher = Callable[[RoutingChoices], Any]


def _view(pointer: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The library's memory, valid until the callback returns."""
    return np.ctypeslib.as_array(pointer, shape)


def _read_only(pointer: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    array = _view(pointer, shape).copy()
    array.flags.writeable = False
    return array


def show_choices(watcher: Watcher, struct: Any) -> None:
    """Calls `watcher` with copies of a moe_routing_choices, and gives the library what it wrote into
    them. ShapeError if it gave one of them another shape or type."""
    n, slots = struct.n_tokens, struct.n_slots
    own = (_view(struct.counts, (n,)), _view(struct.experts, (n, slots)),
           _view(struct.weights, (n, slots)))
    copies = tuple(array.copy() for array in own)
    counts, experts, weights = copies
    watcher(RoutingChoices(
        struct.layer, struct.position, counts, experts, weights, _read_only(struct.hidden, (n, struct.d)),
        _read_only(struct.scores, (n, struct.n_experts)) if struct.scores else None))
    for array, copy in zip(own, copies):
        if (copy.shape, copy.dtype) != (array.shape, array.dtype):
            raise ShapeError(f"routing choices: expected {array.dtype} {array.shape}, "
                             f"found {copy.dtype} {copy.shape}")
        array[...] = copy
