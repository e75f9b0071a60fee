# SPDX-License-Identifier: MIT
"""Language models described entirely by a configuration (see config.py): decoders, encoders, and
encoder-decoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import config as cfg
import fused
from layers import Attention, Build, FeedForward, Head, Linear, Norm
from losses import balance_loss, unit_embeddings
from moe import GroupedLinear, MoE
from quant import fake_activation, fake_weight

Config = dict[str, Any]
Source = tuple[Tensor, Tensor | None]  # an encoder's output (B, S, d), and which rows are not padding (None: all)


class Block(nn.Module):
    """Attention, cross-attention and a feed-forward network, in this order, or some of them:
    x = post_norm(x + r out_norm(f(norm(x)))), with the norms that exist. x (B, T, d)."""

    def __init__(self, build: Build, layer: int) -> None:
        super().__init__()
        role, own = f"layers.{layer}", cfg.layer_config(build.config, layer)
        self.multiplier, self.dropout = build.config["residual_multiplier"], 0.0
        self.moe_dropout = 0.0
        self.ffn = self.moe = None
        self.attention = self._attention(build, role, "attention", own)
        self.cross_attention = self._attention(build, role, "cross_attention", own)
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

    def _attention(self, build: Build, role: str, name: str, own: Config) -> Attention | None:
        a = own.get(name)
        if a is None:
            return None
        self._norm(build, role, f"{name}_norm", a["norm"])
        attention = Attention(build, f"{role}.{name}", a)
        self._norm(build, role, f"{name}_out_norm", a["out_norm"])
        self._norm(build, role, f"{name}_post_norm", a["post_norm"])
        return attention

    def _norm(self, build: Build, role: str, name: str, there: bool) -> None:
        norm = Norm(build, f"{role}.{name}", build.config["d_model"]) if there else nn.Identity()
        self.add_module(name, norm)

    def _add(self, x: Tensor, name: str, f: Callable[[Tensor], Tensor], dropout: float) -> Tensor:
        norm = self.get_submodule
        y = norm(f"{name}_out_norm")(f(norm(f"{name}_norm")(x)))
        y = fused.dropout(y, dropout if self.training else 0.0)
        return norm(f"{name}_post_norm")(torch.add(x, y, alpha=self.multiplier))

    def forward(
        self, x: Tensor, ids: Tensor, real: Tensor | None = None, source: Source | None = None
    ) -> Tensor:
        """real (B, T): which rows are not padding; None: all."""
        if self.attention is not None:
            x = self._add(x, "attention", lambda h: self.attention(h, real=real), self.dropout)
        if self.cross_attention is not None:
            x = self._add(x, "cross_attention", lambda h: self.cross_attention(h, *source), self.dropout)
        if self.moe is not None:
            x = self._add(x, "ffn", lambda h: self.moe(h, ids, real), self.moe_dropout)
        elif self.ffn is not None:
            x = self._add(x, "ffn", self.ffn, self.dropout)
        return x


class Model(nn.Module):
    """ids (B, T) -> logits (B, T, vocab), or the outputs of another head: classes (B, labels), tags and
    spans (B, T, labels), or without a head the hidden states (B, T, d).

    Encoders and encoder-decoders ignore padding: rows of pad_token_id are not attended to and not
    routed. For a decoder it is an ordinary token. An encoder-decoder's inputs are (ids, source) with
    source (B, S).
    """

    def __init__(self, config: Config, biases: Sequence[str] = ()) -> None:
        """`biases`: patterns over roles ("layers.*.attention.q") of the layers that have a bias."""
        super().__init__()
        c = self.config = cfg.complete(config)
        build = Build(c, lambda role: any(fnmatchcase(role, p) for p in biases))
        d = c["d_model"]
        self.embedding = nn.Embedding(c["vocab_size"], d)
        nn.init.normal_(self.embedding.weight, std=0.02 if c["tie_embeddings"] else 1.0)
        self.embedding_kinds = cfg.precision_of(c, "embedding")
        learned = c["positions"] == "learned"
        self.position_embedding = nn.Embedding(c["context_length"], d) if learned else None
        self.embedding_norm = Norm(build, "embedding_norm", d) if c["embedding_norm"] else None
        self.layers = nn.ModuleList(Block(build, i) for i in range(c["n_layers"]))
        self.final_norm = Norm(build, "final_norm", d) if c.get("final_norm", True) else nn.Identity()
        self.head = self._head(build)
        self.kind = cfg.kind(c)
        self.n_encoder_layers = cfg.n_encoder_layers(c)
        if self.n_encoder_layers:
            self.source_position_embedding = nn.Embedding(c["source_length"], d) if learned else None
            self.source_embedding_norm = (
                Norm(build, "source_embedding_norm", d) if c["embedding_norm"] else None
            )
            norm = c.get("encoder_norm", False)
            self.encoder_norm = Norm(build, "encoder_norm", d) if norm else nn.Identity()

    def _head(self, build: Build) -> Head | None:
        """The head; None: the embedding alone, or no head."""
        c, h = self.config, cfg.head(self.config)
        tied = c["tie_embeddings"]
        if h["kind"] == "none" or (tied and not (h["dense"] or build.biases("head"))):
            return None
        return Head(build, c["vocab_size"] if h["kind"] == "tokens" else h["n_labels"], tied)

    def _table(self) -> Tensor:
        return fake_weight(self.embedding.weight, self.embedding_kinds[0])

    def _real(self, ids: Tensor) -> Tensor | None:
        """The rows that are not padding; None: all. Like the runtime, a decoder has no padding."""
        pad = None if self.kind == "decoder" else self.config["pad_token_id"]
        real = None if pad is None else ids != pad
        return None if real is None or real.all() else real

    def _embed(self, ids: Tensor, side: str = "") -> Tensor:
        """side: "source_" for the input of an encoder-decoder's encoder."""
        x = F.embedding(ids, self._table()) * self.config["embedding_multiplier"]
        positions = getattr(self, f"{side}position_embedding")
        if positions is not None:
            x = x + positions.weight[: ids.shape[1]]
        norm = getattr(self, f"{side}embedding_norm")
        return x if norm is None else norm(x)

    def read(self, source: Tensor) -> Source:
        """The encoder's output, to which an encoder-decoder's decoder attends."""
        x, real = self._embed(source, "source_"), self._real(source)
        for block in self.layers[: self.n_encoder_layers]:
            x = block(x, source, real)
        return self.encoder_norm(x), real

    def hidden(self, ids: Tensor, source: Tensor | None = None) -> Tensor:
        """The hidden states after the last norm, (B, T, d)."""
        memory = None if source is None else self.read(source)
        x, real = self._embed(ids), self._real(ids)
        for block in self.layers[self.n_encoder_layers :]:
            x = block(x, ids, real, memory)
        return self.final_norm(x)

    def forward(self, ids: Tensor, source: Tensor | None = None) -> Tensor:
        x, kind = self.hidden(ids, source), cfg.head(self.config)["kind"]
        if kind == "none":
            return x
        if kind == "classes":
            x = x[:, 0]
        if self.config["tie_embeddings"]:
            y = self._tied(x)
        else:
            y = self.head(x)
        if kind == "span" and (real := self._real(ids)) is not None:
            y = y.masked_fill(~real[..., None], -math.inf)
        multiplier = self.config["logit_multiplier"]
        return y if multiplier == 1 else y * multiplier

    def _tied(self, x: Tensor) -> Tensor:
        bias = None
        if self.head is not None:
            x, bias = self.head.front(x), self.head.bias
        return F.linear(fake_activation(x, self.embedding_kinds[1]), self._table(), bias)

    def moe_layers(self) -> list[MoE]:
        """The MoE layers, lowest first."""
        return [b.moe for b in self.layers if b.moe is not None]

    def balance_loss(self) -> Tensor:
        """The mean over the MoE layers that have such a loss; 1 if balanced (losses.py)."""
        found = [
            balance_loss(layer.route.scores, layer.router.tau_0)[0]
            for layer in self.moe_layers()
            if layer.route is not None and layer.route.scores is not None
        ]
        return torch.stack(found).mean() if found else torch.zeros(())

    def settle_embeddings(self) -> None:
        """Scale the expert embeddings of cosine routers to their fixed length: at the start of training
        and after every step (X-MoE, section 3.1)."""
        with torch.no_grad():
            for layer in self.moe_layers():
                if layer.router.kind != "cosine":
                    continue
                e = layer.router.embedding.weight
                if e.requires_grad:  # not frozen
                    e.copy_(unit_embeddings(e))

    def share_capacity(self, together: bool) -> None:
        """Whether the sequences of a batch share a capacity at inference too, as they do in training."""
        for layer in self.moe_layers():
            layer.together = together

    def set_dropout(self, p: float, moe: float | None = None) -> None:
        """Set the dropout of what each block adds; moe: of what MoE layers add (None: as the others)."""
        for block in self.layers:
            block.dropout, block.moe_dropout = p, p if moe is None else moe

    def freeze_routing(self) -> None:
        """Freeze the routers and the experts (X-MoE, section 3.3)."""
        for layer in self.moe_layers():
            for p in (*layer.router.parameters(), *layer.experts.parameters()):
                p.requires_grad_(False)
                p.grad = None

    def set_kv_dtype(self, dtype: torch.dtype) -> None:
        """Round K and V as a cache of that type does (inference only). Those of an encoder are not
        cached."""
        for block in self.layers:
            if block.attention is not None and block.attention.a["causal"]:
                block.attention.kv_dtype = dtype
            if block.cross_attention is not None:
                block.cross_attention.kv_dtype = dtype

    def freeze_ternary(self) -> None:
        """Replace ternary weights by their stored values {-s, 0, +s}, as in an exported checkpoint, and
        use them without quantising. Weights of other precisions are quantised by its reader."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, (Linear, GroupedLinear)) and module.weights.startswith(
                    "ternary"
                ):
                    module.weight.copy_(fake_weight(module.weight, module.weights))
                    module.weights = "f32"
