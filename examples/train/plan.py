# SPDX-License-Identifier: MIT
"""The settings that all rows of a run share, and the tolerances between runtime and PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PAIRS = 4  # sentence pairs that count as one window of a batch in translation rows
TOLERANCE = {"f32": 0.0005, "a8": 0.001}  # relative difference of perplexities
OUTPUTS = 1e-3  # difference of outputs, relative to the largest one
TIE = 1e-6  # a difference of router scores, relative to the largest, that rounding may reverse


class Disagreement(RuntimeError):
    """The runtime's results differ from PyTorch's."""


@dataclass(frozen=True)
class Plan:
    steps: int = 1000
    batch: int = 8  # windows
    text: int = 4_000_000  # characters of training text
    held_out: int = 80_000
    lr: float = 3e-3

    def warmup(self) -> int:
        """Steps until the highest learning rate."""
        return max(1, min(100, self.steps // 10))


def perplexity_difference(name: str, pytorch: float, runtime: float, kind: str = "f32") -> float:
    """The relative difference of two perplexities; above TOLERANCE[kind] it is an error."""
    difference = abs(runtime / pytorch - 1)
    if not difference <= TOLERANCE[kind]:
        raise Disagreement(
            f"{name}: PyTorch finds a perplexity of {pytorch:.6f}, moe {runtime:.6f}: "
            f"they differ by {difference:.4%}, expected at most {TOLERANCE[kind]:.2%}"
        )
    return difference


def output_difference(name: str, pytorch: np.ndarray, runtime: np.ndarray) -> float:
    """The largest difference of outputs, relative to the largest output; above OUTPUTS it is an error."""
    if pytorch.shape != runtime.shape:
        raise Disagreement(f"{name}: PyTorch finds outputs of shape {pytorch.shape}, moe {runtime.shape}")
    difference = float(abs(runtime - pytorch).max() / abs(pytorch).max())
    if not difference <= OUTPUTS:
        raise Disagreement(
            f"{name}: outputs of PyTorch and moe differ by {difference:.1e} of the largest, expected at most {OUTPUTS:g}"
        )
    return difference
