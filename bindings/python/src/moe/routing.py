"""Routing decisions, as reported by Session.watch_routing()."""

from __future__ import annotations

import dataclasses
from typing import Any
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ._arrays import FloatArray, IntArray


@dataclasses.dataclass(frozen=True)
class RoutingChoices:
    """The choices of one MoE layer for the tokens of one pass; of MH-MoE each token has as many
    rows as the layer has sub-heads. The arrays are the library's, valid until the callback returns:
    copy what you need. The callback may change the first three, which the model then uses."""

    layer: int
    position: int  # of the first token in the text; the others follow it
    counts: IntArray  # (n,): experts taken
    experts: IntArray  # (n, slots), best first; beyond the count anything
    weights: FloatArray  # (n, slots)
    hidden: FloatArray  # (n, d): what the router read, after the norm in front of the layer
    scores: FloatArray | None  # (n, n_experts): logits or cosines; None of a router by token


Watcher = Callable[[RoutingChoices], Any]


def _view(pointer: Any, shape: tuple[int, ...], writable: bool = True) -> npt.NDArray[Any]:
    array = np.ctypeslib.as_array(pointer, shape)
    array.flags.writeable = writable
    return array


def routing_choices(struct: Any) -> RoutingChoices:
    """Views of a moe_routing_choices."""
    n, slots = struct.n_tokens, struct.n_slots
    return RoutingChoices(
        struct.layer, struct.position, _view(struct.counts, (n,)),
        _view(struct.experts, (n, slots)), _view(struct.weights, (n, slots)),
        _view(struct.hidden, (n, struct.d), False),
        _view(struct.scores, (n, struct.n_experts), False) if struct.scores else None)
