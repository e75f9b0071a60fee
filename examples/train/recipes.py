# SPDX-License-Identifier: MIT
"""The settings of a training run, the papers' settings by name, and the learning rate.

A recipe has what a paper prints and, where the paper is silent, what its public training script says. A recipe
NAME-code is the script alone, where the two differ. Learning rates and batch sizes depend on model size and are not
part of a recipe; activations and experts are a part of the configuration.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import config as cfg

SCHEDULES = ("linear", "cosine", "constant")
GATES = ("raw", "renormalised")


@dataclass(frozen=True)
class Settings:
    lr: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8  # of AdamW
    weight_decay: float = 0.05  # on matrices
    clip: float = 1.0  # largest norm of the gradient
    schedule: str = "linear"
    warmup: int = 100  # steps
    floor: float = 0.0  # the final learning rate as a share of the highest
    dropout: float = 0.0  # of what each block adds
    moe_dropout: float | None = None  # of what MoE layers add; None: as dropout
    alpha: float = 0.01  # weight of the balance loss
    capacity_factor: float | None = None  # None: as the configuration says
    even_start: bool = False  # every MoE layer starts with outputs of one size (steps.even_outputs)
    freeze_routing: int | None = None  # the step from which routers and experts are frozen
    gates: str | None = None  # weights of softmax routers with k above 1; None: as the configuration says

    def __post_init__(self) -> None:
        _within("dropout", self.dropout, 0, 1, "below 1", self.dropout < 1)
        _within("MoE dropout", self.moe_dropout or 0, 0, 1, "below 1", (self.moe_dropout or 0) < 1)
        _within("eps", self.eps, 0, 1, "above 0", self.eps > 0)
        _within("floor", self.floor, 0, 1)
        _within("alpha", self.alpha, 0, math.inf)
        _within("capacity factor", self.capacity_factor or 0, 0, math.inf)
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: expected one of {', '.join(SCHEDULES)}, found {self.schedule}")
        if self.gates not in (None, *GATES):
            raise ValueError(f"gates: expected one of {', '.join(GATES)}, found {self.gates}")


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
    # Chi et al. 2022, section 4.1, with no dropout in the layers of experts. Routing is frozen in fine-tuning, from
    # step 0 of such a run (section 3.3); pre-training does not freeze it.
    "x-moe": {
        "betas": (0.9, 0.98),
        "eps": 1e-6,
        "weight_decay": 0.01,
        "schedule": "linear",
        "dropout": 0.1,
        "moe_dropout": 0.0,
        "alpha": 0.01,
    },
    # Huang et al. 2024, without dropout. Their eq. 1 leaves the gates as they are; their training scripts ask for gates
    # divided by the sum of those of the chosen (--moe-normalize-gate-prob-before-dropping), as here. The top-k gate
    # of their public code does not get that option and leaves them as they are.
    "mh-moe": {
        "betas": (0.9, 0.98),
        "eps": 1e-6,
        "weight_decay": 0.01,
        "clip": 2.0,
        "schedule": "linear",
        "alpha": 0.01,
        "gates": "renormalised",
    },
}
# The training script that their public repository names, and the gates that its code computes.
RECIPES["mh-moe-code"] = RECIPES["mh-moe"] | {"betas": (0.9, 0.95), "weight_decay": 0.1, "gates": "raw"}


def with_gates(config: cfg.Config, gates: str | None) -> cfg.Config:
    """`config` with these weights in every softmax router that chooses several experts; None: unchanged. A single
    expert keeps its probability: divided by itself it would be 1, and the router would learn nothing."""
    if gates is None:
        return config
    several = []
    for i in range(config["n_layers"]):
        ffn = cfg.layer_config(config, i).get("ffn", {})
        router = ffn["moe"]["router"] if ffn.get("kind") == "moe" else {}
        if router.get("kind") == "softmax" and router["k"] > 1:
            several.append(i)
    entry = {"index": several, "ffn": {"moe": {"router": {"weights": gates}}}}
    return config | {"layers": [*config.get("layers", []), entry]} if several else config


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
