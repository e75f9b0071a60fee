# SPDX-License-Identifier: MIT
"""The settings of a training run, the papers' settings by name, and the learning rate.

The papers' settings are those of their text or, if it does not give them, of their public training
scripts. Learning rates and batch sizes depend on model size and are not part of a recipe.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

SCHEDULES = ("linear", "cosine", "constant")


@dataclass(frozen=True)
class Settings:
    lr: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.05  # on matrices
    clip: float = 1.0  # largest norm of the gradient
    schedule: str = "linear"
    warmup: int = 100  # steps
    floor: float = 0.0  # the final learning rate as a share of the highest
    dropout: float = 0.0  # of what each block adds
    alpha: float = 0.01  # weight of the balance loss
    capacity_factor: float | None = None  # None: as the configuration says
    freeze_routing: int | None = None  # the step from which routers are frozen

    def __post_init__(self) -> None:
        _within("dropout", self.dropout, 0, 1, "below 1", self.dropout < 1)
        _within("floor", self.floor, 0, 1)
        _within("alpha", self.alpha, 0, math.inf)
        _within("capacity factor", self.capacity_factor or 0, 0, math.inf)
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: expected one of {', '.join(SCHEDULES)}, found {self.schedule}")


def _within(name: str, value: float, low: float, high: float, more: str = "", also: bool = True) -> None:
    if not (low <= value <= high and math.isfinite(value) and also):
        wanted = f"a number from {low:g} to {high:g}" + (f", {more}" if more else "")
        raise ValueError(f"{name}: expected {wanted}, found {value:g}")


RECIPES: dict[str, dict[str, Any]] = {
    # Yang et al. 2024 and their script for language models: cosine decay to a hundredth of the rate; an
    # expert takes at most `gamma` times the average number of tokens.
    "xmoe": {
        "betas": (0.9, 0.95),
        "weight_decay": 0.1,
        "schedule": "cosine",
        "floor": 0.01,
        "dropout": 0.1,
        "alpha": 0.01,
        "capacity_factor": 8.0,
    },
    # Chi et al. 2022, section 4.1. Routing is frozen during fine-tuning, from step 0 of such a run;
    # pre-training does not freeze it.
    "x-moe": {
        "betas": (0.9, 0.98),
        "weight_decay": 0.01,
        "schedule": "linear",
        "dropout": 0.1,
        "alpha": 0.01,
    },
    # Huang et al. 2024, as in their public training script.
    "mh-moe": {
        "betas": (0.9, 0.98),
        "weight_decay": 0.01,
        "clip": 2.0,
        "schedule": "linear",
        "dropout": 0.1,
        "alpha": 0.01,
    },
}


def settings(recipe: str | None = None, **own: Any) -> Settings:
    """The settings of a recipe, overridden by `own`."""
    if recipe is not None and recipe not in RECIPES:
        raise ValueError(f"recipe: expected one of {', '.join(RECIPES)}, found {recipe}")
    named = RECIPES[recipe] if recipe else {}
    known = {f.name for f in dataclasses.fields(Settings)}
    if unknown := sorted(set(own) - known):
        raise ValueError(f"training settings: unknown {', '.join(unknown)}")
    return Settings(**(named | own))


def learning_rate(s: Settings, step: int, done: float) -> float:
    """The learning rate of a step; done: the completed share of the run."""
    left = max(0.0, 1.0 - done)
    if s.schedule == "cosine":
        left = (1.0 - math.cos(math.pi * left)) / 2
    elif s.schedule == "constant":
        left = 1.0
    return s.lr * (s.floor + (1.0 - s.floor) * left) * min(1.0, (step + 1) / max(1, s.warmup))
