"""What every training run does: how weights start, one step of the optimiser, frozen routing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import config as cfg
from model import Model
from recipes import Settings, learning_rate


def with_capacity(config: cfg.Config, gamma: float | None) -> cfg.Config:
    """`config` with that capacity factor in every MoE layer; None leaves it as it is."""
    if gamma is None:
        return config
    is_moe = [
        i for i in range(config["n_layers"])
        if cfg.layer_config(config, i).get("ffn", {}).get("kind") == "moe"
    ]
    entry = {"index": is_moe, "ffn": {"moe": {"capacity": {"gamma": gamma}}}}
    return config | {"layers": [*config.get("layers", []), entry]} if is_moe else config


def groups(model: Model, decay: float) -> list[dict[str, Any]]:
    """Weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


def calm_outputs(model: Model) -> None:
    """Divide what each block adds by sqrt(2 layers) at the start, as GPT-2 does, so that the
    embedding is still heard in the last layer."""
    factor = (2 * len(model.layers)) ** -0.5
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith((".attention.o.weight", ".moe.merge.weight", ".ffn.down.weight")):
                p.mul_(factor)


class Steps:
    """A model, its optimiser, and how many steps they have made."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model, self.settings, self.step = model, settings, 0
        calm_outputs(model)
        model.settle_embeddings()
        model.set_dropout(settings.dropout)
        self.optimizer = torch.optim.AdamW(
            groups(model, settings.weight_decay), lr=settings.lr, betas=settings.betas, fused=True
        )

    def rate(self, done: float) -> float:
        return learning_rate(self.settings, self.step, done)

    def _prepare(self, done: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(done)
        frozen = self.settings.freeze_routing
        if frozen is not None and self.step >= frozen:
            self.model.freeze_routing()

    def one(
        self, x: Tensor, y: Tensor, done: float, share: Callable[[Model], None] | None = None
    ) -> tuple[float, float]:
        """One step on inputs and targets (B, T), `done` of the run behind it: the mean loss a token
        and the balance term. share: called between the gradients and their use."""
        self._prepare(done)
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        balance = self.model.balance_loss()
        (loss + self.settings.alpha * balance).backward()
        if share is not None:
            share(self.model)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()
        self.model.settle_embeddings()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.item(), balance.item()
