"""Decoder-only language models described by configuration alone (see config.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import config as cfg
from layers import Attention, Build, FeedForward, Linear, Norm
from losses import balance_loss, unit_embeddings
from moe import GroupedLinear, MoE
from quant import fake_activation, fake_weight

Config = dict[str, Any]


class Block(nn.Module):
    """Attention and then a feed-forward network, or one of them:
    x = post_norm(x + r out_norm(f(norm(x)))), with those norms that there are. x (B, T, d)."""

    def __init__(self, build: Build, layer: int) -> None:
        super().__init__()
        role, own = f"layers.{layer}", cfg.layer_config(build.config, layer)
        self.multiplier, self.dropout = build.config["residual_multiplier"], 0.0
        self.attention = self.ffn = self.moe = None
        if a := own.get("attention"):
            self._norm(build, role, "attention_norm", a["norm"])
            self.attention = Attention(build, f"{role}.attention", a)
            self._norm(build, role, "attention_out_norm", a["out_norm"])
            self._norm(build, role, "attention_post_norm", a["post_norm"])
        if f := own.get("ffn"):
            self._norm(build, role, "ffn_norm", f["norm"])
            if f["kind"] == "dense":
                self.ffn = FeedForward(
                    build, f"{role}.ffn", build.config["d_model"], f, f["d_ff"]
                )
            else:
                self.moe = MoE(build, f"{role}.moe", f)
            self._norm(build, role, "ffn_out_norm", f["out_norm"])
            self._norm(build, role, "ffn_post_norm", f["post_norm"])

    def _norm(self, build: Build, role: str, name: str, there: bool) -> None:
        norm = Norm(build, f"{role}.{name}", build.config["d_model"]) if there else nn.Identity()
        self.add_module(name, norm)

    def _add(self, x: Tensor, name: str, f: Callable[[Tensor], Tensor]) -> Tensor:
        norm = self.get_submodule
        y = norm(f"{name}_out_norm")(f(norm(f"{name}_norm")(x)))
        y = F.dropout(y, self.dropout, self.training)
        return norm(f"{name}_post_norm")(x + self.multiplier * y)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        if self.attention is not None:
            x = self._add(x, "attention", self.attention)
        if self.moe is not None:
            x = self._add(x, "ffn", lambda h: self.moe(h, ids))
        elif self.ffn is not None:
            x = self._add(x, "ffn", self.ffn)
        return x


class Model(nn.Module):
    """ids (B, T) -> logits (B, T, vocab)."""

    def __init__(self, config: Config, biases: Sequence[str] = ()) -> None:
        """`biases`: patterns over roles ("layers.*.attention.q") of the layers that have a bias."""
        super().__init__()
        c = self.config = cfg.complete(config)
        build = Build(c, lambda role: any(fnmatchcase(role, p) for p in biases))
        d = c["d_model"]
        self.embedding = nn.Embedding(c["vocab_size"], d)
        nn.init.normal_(self.embedding.weight, std=0.02 if c["tie_embeddings"] else 1.0)
        self.embedding_kinds = cfg.precision_of(c, "embedding")
        self.position_embedding = (
            nn.Embedding(c["context_length"], d) if c["positions"] == "learned" else None
        )
        self.embedding_norm = Norm(build, "embedding_norm", d) if c["embedding_norm"] else None
        self.layers = nn.ModuleList(Block(build, i) for i in range(c["n_layers"]))
        self.final_norm = Norm(build, "final_norm", d) if c.get("final_norm", True) else nn.Identity()
        self.head = None if c["tie_embeddings"] else Linear(build, "head", d, c["vocab_size"])

    def forward(self, ids: Tensor) -> Tensor:
        c = self.config
        table = fake_weight(self.embedding.weight, self.embedding_kinds[0])
        x = F.embedding(ids, table) * c["embedding_multiplier"]
        if self.position_embedding is not None:
            x = x + self.position_embedding.weight[: ids.shape[1]]
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        for block in self.layers:
            x = block(x, ids)
        x = self.final_norm(x)
        if self.head is None:
            y = F.linear(fake_activation(x, self.embedding_kinds[1]), table)
        else:
            y = self.head(x)
        return y * c["logit_multiplier"]

    def moe_layers(self) -> list[MoE]:
        """The MoE layers, lowest first."""
        return [b.moe for b in self.layers if b.moe is not None]

    def balance_loss(self) -> Tensor:
        """The mean over the MoE layers that have such a loss; 1 when balanced (losses.py)."""
        found = [
            balance_loss(layer.route.scores, layer.router.tau_0)[0]
            for layer in self.moe_layers()
            if layer.route is not None and layer.route.scores is not None
        ]
        return torch.stack(found).mean() if found else torch.zeros(())

    def settle_embeddings(self) -> None:
        """Expert embeddings of cosine routers back to their length: at the start of training and
        after every step (X-MoE, section 3.1)."""
        with torch.no_grad():
            for layer in self.moe_layers():
                if layer.router.kind != "cosine":
                    continue
                e = layer.router.embedding.weight
                if e.requires_grad:  # not frozen
                    e.copy_(unit_embeddings(e))

    def set_dropout(self, p: float) -> None:
        """Training drops that share of what each block adds."""
        for block in self.layers:
            block.dropout = p

    def freeze_routing(self) -> None:
        """Routers stay as they are from now on (X-MoE, section 3.2)."""
        for layer in self.moe_layers():
            for p in layer.router.parameters():
                p.requires_grad_(False)
                p.grad = None

    def set_kv_dtype(self, dtype: torch.dtype) -> None:
        """Round K and V as a cache of that type keeps them (inference only)."""
        for block in self.layers:
            if block.attention is not None:
                block.attention.kv_dtype = dtype

    def freeze_ternary(self) -> None:
        """Replace ternary weights by their stored values {-s, 0, +s} and take them as they are
        from now on: what an exported checkpoint holds. Other precisions are left to its reader."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, (Linear, GroupedLinear)) and module.weights.startswith(
                    "ternary"
                ):
                    module.weight.copy_(fake_weight(module.weight, module.weights))
                    module.weights = "f32"
