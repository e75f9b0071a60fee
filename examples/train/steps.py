# SPDX-License-Identifier: MIT
"""Common to all training runs: initial weights, optimiser steps, frozen routing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import config as cfg
from fused import CrossEntropy
from model import Model
from recipes import Settings, learning_rate


def with_capacity(config: cfg.Config, gamma: float | None) -> cfg.Config:
    """`config` with this capacity factor in every MoE layer; None: unchanged."""
    if gamma is None:
        return config
    is_moe = [
        i for i in range(config["n_layers"])
        if cfg.layer_config(config, i).get("ffn", {}).get("kind") == "moe"
    ]
    entry = {"index": is_moe, "ffn": {"moe": {"capacity": {"gamma": gamma}}}}
    return config | {"layers": [*config.get("layers", []), entry]} if is_moe else config


def groups(model: Model, decay: float) -> list[dict[str, Any]]:
    """Parameter groups with weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


def calm_outputs(model: Model) -> None:
    """Divide what each block adds by sqrt(2 layers) initially, as GPT-2 does, so that the embedding is
    not drowned in the last layer; learned positions start small for the same reason."""
    factor = (2 * len(model.layers)) ** -0.5
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("attention.o.weight", ".moe.merge.weight", ".ffn.down.weight")):
                p.mul_(factor)
            elif name.endswith("position_embedding.weight"):
                p.mul_(0.1)


EVEN = 0.2  # the standard deviation of what a dense feed-forward layer adds at the start, after calm_outputs


def even_outputs(model: Model, size: float = EVEN) -> None:
    """Scale the last matrices of each MoE layer so that what it adds has the same standard deviation in every system.
    Otherwise systems differ forty-fold at the start: raw gates are small where there are many experts, and
    calm_outputs divides a merge layer but no experts."""
    c = model.config
    generator = torch.Generator().manual_seed(1)
    # The first ids are special, of which padding would not be routed.
    draw = lambda: torch.randint(c["vocab_size"] // 8, c["vocab_size"], (4, min(64, c["context_length"])), generator=generator)
    inputs = (draw(), draw()) if model.n_encoder_layers else (draw(),)
    where = model.embedding.weight.device
    for _ in range(3):  # a layer's input changes with those below, and a stack of experts is not linear
        sizes = output_sizes(model, *(ids.to(where) for ids in inputs))
        with torch.no_grad():
            for layer, found in zip(model.moe_layers(), sizes, strict=False):
                for weight in layer.last_weights() if found > 0 else ():
                    weight.mul_(size / found)


def device() -> str:
    """Where models are trained."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def output_sizes(model: Model, ids: Tensor, *more: Tensor) -> list[float]:
    """The standard deviation of what each MoE layer and, in a dense model, each feed-forward layer adds to its input,
    for these ids (B, T): as it is at the start of training if the model's weights are those of a fresh `Steps`."""
    sizes: list[float] = []
    blocks = [m for b in model.layers if (m := b.moe) is not None] or [b.ffn for b in model.layers if b.ffn is not None]
    hooks = [b.register_forward_hook(lambda _m, _x, y: sizes.append(y.std().item())) for b in blocks]
    with torch.no_grad():
        model(ids, *more)
    for hook in hooks:
        hook.remove()
    return sizes


def token_loss(logits: Tensor, y: Tensor) -> Tensor:
    """The mean over the targets; -100 means no target."""
    return CrossEntropy.apply(logits.flatten(0, -2), y.flatten())


CURVE = 20  # points of a learning curve
Inputs = Tensor | tuple[Tensor, ...]
Loss = Callable[[Tensor, Tensor], Tensor]


class Steps:
    """A model, its optimiser, and the number of steps made. fresh: the weights are still random."""

    def __init__(
        self, model: Model, settings: Settings, fresh: bool = True, loss: Loss = token_loss
    ) -> None:
        self.model, self.settings, self.step, self.loss = model, settings, 0, loss
        if fresh:
            calm_outputs(model)
            if settings.even_start:
                even_outputs(model)
            model.settle_embeddings()
        model.set_dropout(settings.dropout, settings.moe_dropout)
        self.optimizer = torch.optim.AdamW(
            groups(model, settings.weight_decay), lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True
        )

    def rate(self, done: float) -> float:
        return learning_rate(self.settings, self.step, done)

    def _prepare(self, done: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(done)
        frozen = self.settings.freeze_routing
        if frozen is not None and self.step >= frozen:
            self.model.freeze_routing()

    def _clip(self) -> None:
        """torch.nn.utils.clip_grad_norm_, which multiplies all gradients even if they are short enough."""
        having = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in having])
        if not norm <= self.settings.clip - 1e-6:
            torch.nn.utils.clip_grads_with_norm_(having, self.settings.clip, norm)

    def one(
        self,
        x: Inputs,
        y: Tensor,
        done: float,
        share: Callable[[Model], None] | None = None,
    ) -> tuple[float, float]:
        """Makes one step on the model's inputs, ids (B, T) or several tensors, and targets, after the share
        `done` of the run. Returns the mean loss and the balance term. share: called when the gradients are
        computed, before they are used."""
        self._prepare(done)
        loss = self.loss(self.model(*(x if isinstance(x, tuple) else (x,))), y)
        balance = self.model.balance_loss()
        (loss + self.settings.alpha * balance).backward()
        if share is not None:
            share(self.model)
        self._clip()
        self.optimizer.step()
        self.model.settle_embeddings()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.item(), balance.item()


def _to(tensors: Inputs, where: str) -> Inputs:
    return tuple(t.to(where) for t in tensors) if isinstance(tensors, tuple) else tensors.to(where)


@dataclass(frozen=True)
class Curve:
    """How a run went: means over each of its CURVE parts."""

    losses: list[float]
    experts: list[float]  # computed per (sub-)token and MoE layer; [] for a dense model
    # Share of the first batch's (sub-)tokens that go first to another expert than at the end of the part before
    # (routing fluctuation, X-MoE, fig. 3a), mean over MoE layers; [] for a dense model or a run of fewer steps than parts.
    fluctuation: list[float]


def _experts(model: Model) -> float:
    """The mean number of experts of the last pass that a (sub-)token was computed by."""
    routes = [layer.route for layer in model.moe_layers() if layer.route is not None]
    return sum(r.kept.sum().item() / r.kept.shape[0] for r in routes) / len(routes)


def _first_choices(model: Model, x: Inputs) -> list[Tensor]:
    """The first expert of each (sub-)token, for each MoE layer."""
    model.eval()
    with torch.no_grad():
        model(*(x if isinstance(x, tuple) else (x,)))
    model.train()
    return [layer.route.indices[:, 0] for layer in model.moe_layers()]


def _moved(before: list[Tensor], after: list[Tensor]) -> float:
    shares = [(a != b).double().mean().item() for a, b in zip(before, after, strict=True)]
    return sum(shares) / len(shares)


def _parts(values: list[float]) -> list[float]:
    cuts = [len(values) * i // CURVE for i in range(CURVE + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in zip(cuts, cuts[1:]) if b > a]


def fit(
    model: Model, settings: Settings, n: int, batch: Callable[[], tuple[Inputs, Tensor]],
    fresh: bool = True, loss: Loss = token_loss,
) -> Curve:
    """Makes n steps on the batches from `batch`, on the GPU if there is one. Afterwards the model is on the CPU."""
    where, losses, experts, chosen = device(), [], [], []
    steps = Steps(model.to(where), settings, fresh, loss)
    ends = {n * (i + 1) // CURVE for i in range(CURVE)} if n >= CURVE else set()
    for step in range(n):
        x, y = batch()
        x, y = _to(x, where), y.to(where)
        probe = x if step == 0 else probe
        losses.append(steps.one(x, y, step / n)[0])
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"{model.config['name']}: the loss of step {step} is not finite")
        if model.moe_layers():
            experts.append(_experts(model))
            if step + 1 in ends:
                chosen.append(_first_choices(model, probe))
    model.to("cpu")
    return Curve(_parts(losses), _parts(experts), [_moved(a, b) for a, b in zip(chosen, chosen[1:])])
