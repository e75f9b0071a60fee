"""What all rows of a run have in common, and how far the runtime may be from PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PAIRS = 4  # of sentences, which rows that translate learn in place of a window
TOLERANCE = {"f32": 0.0005, "a8": 0.001}  # of a perplexity
OUTPUTS = 1e-3  # of the largest output


class Disagreement(RuntimeError):
    """The runtime does not compute what PyTorch computes."""


@dataclass(frozen=True)
class Plan:
    steps: int = 3000
    batch: int = 8  # windows
    text: int = 4_000_000  # characters to learn from
    held_out: int = 80_000
    lr: float = 3e-3

    def warmup(self) -> int:
        """Steps until the highest rate."""
        return max(1, min(100, self.steps // 10))


def perplexity_difference(name: str, pytorch: float, runtime: float, kind: str = "f32") -> float:
    """By which part two perplexities differ; too much is an error. kind: of TOLERANCE."""
    difference = abs(runtime / pytorch - 1)
    if not difference <= TOLERANCE[kind]:
        raise Disagreement(
            f"{name}: PyTorch finds a perplexity of {pytorch:.6f}, moe {runtime:.6f}: "
            f"they differ by {difference:.4%}, expected at most {TOLERANCE[kind]:.2%}"
        )
    return difference


def output_difference(name: str, pytorch: np.ndarray, runtime: np.ndarray) -> float:
    """The largest difference of outputs as a part of the largest of them; too much is an error."""
    if pytorch.shape != runtime.shape:
        raise Disagreement(f"{name}: PyTorch finds outputs of shape {pytorch.shape}, moe {runtime.shape}")
    difference = float(abs(runtime - pytorch).max() / abs(pytorch).max())
    if not difference <= OUTPUTS:
        raise Disagreement(
            f"{name}: outputs of PyTorch and moe differ by {difference:.1e} of the largest, expected at most {OUTPUTS:g}"
        )
    return difference
