# SPDX-License-Identifier: MIT
"""Norms, linear layers with a precision, attention, and the plain feed-forward layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import config as cfg
import rope
from fused import GatedSilu, RmsNorm
from quant import fake_activation, fake_weight

Config = dict[str, Any]


class Build:
    """The arguments of a layer's constructor: the configuration, and which biases exist."""

    def __init__(self, config: Config, biases: Callable[[str], bool]) -> None:
        self.config, self.biases = config, biases


class Norm(nn.Module):
    """RMSNorm (Zhang and Sennrich 2019) or LayerNorm over the last axis, in float32."""

    def __init__(self, build: Build, role: str, *shape: int) -> None:
        super().__init__()
        self.kind, self.eps = build.config["norm"]["kind"], build.config["norm"]["eps"]
        self.weight = nn.Parameter(torch.ones(*shape))
        self.bias = nn.Parameter(torch.zeros(*shape)) if build.biases(role) else None

    def plain(self, x: Tensor) -> Tensor:
        """The norm without weight and bias."""
        if self.kind == "layer":
            return F.layer_norm(x, x.shape[-1:], None, None, self.eps)
        return RmsNorm.apply(x, None, self.eps)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d)."""
        y = self.plain(x) * self.weight if self.kind == "layer" else RmsNorm.apply(x, self.weight, self.eps)
        return y if self.bias is None else y + self.bias


class Linear(nn.Module):
    """y = x W^T + b with W (out, in) stored and x quantised as the configuration says."""

    def __init__(
        self, build: Build, role: str, n_in: int, n_out: int, std: float | None = None
    ) -> None:
        super().__init__()
        self.weights, self.activations = cfg.precision_of(build.config, role)
        self.weight = nn.Parameter(torch.randn(n_out, n_in) * (std or n_in**-0.5))
        self.bias = nn.Parameter(torch.zeros(n_out)) if build.biases(role) else None

    def prepare(self, x: Tensor) -> Tensor:
        """The input as this layer reads it; the same for all layers of one activation precision."""
        return fake_activation(x, self.activations)

    def multiply(self, x: Tensor) -> Tensor:
        """The product for an input from `prepare`."""
        return F.linear(x, fake_weight(self.weight, self.weights), self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(self.prepare(x))


def activate(gate: Tensor, up: Tensor | None, f: Config) -> Tensor:
    """The nonlinearity, plain (up None) or gated, with the clamped-SwiGLU parameters."""
    if up is not None and f["limit"] > 0:
        gate, up = gate.clamp(max=f["limit"]), up.clamp(-f["limit"], f["limit"])
    act = f["act"]
    if act == "silu":
        if up is not None and f["alpha"] == 1 and f["up_offset"] == 0:
            return GatedSilu.apply(gate, up)
        h = gate * torch.sigmoid(f["alpha"] * gate)
    elif act == "tanh":
        h = torch.tanh(gate)
    elif act in ("gelu", "gelu_tanh"):
        h = F.gelu(gate, approximate="none" if act == "gelu" else "tanh")
    else:
        h = F.relu(gate)
        h = h * h if act == "relu2" else h
    return h if up is None else h * (up + f["up_offset"])


class FeedForward(nn.Module):
    """down(act(gate x) * up x), or down(act(up x)) when not gated. x (..., d) -> (..., d)."""

    def __init__(self, build: Build, role: str, d: int, f: Config, d_ff: int) -> None:
        super().__init__()
        self.f = f
        self.gate = Linear(build, f"{role}.gate", d, d_ff) if f["gated"] else None
        self.up = Linear(build, f"{role}.up", d, d_ff)
        self.down = Linear(build, f"{role}.down", d_ff, d)
        self.sub_norm = Norm(build, f"{role}.sub_norm", d_ff) if f["sub_norm"] else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.up.prepare(x)
        up = self.up.multiply(x)
        h = (
            activate(up, None, self.f)
            if self.gate is None
            else activate(self.gate.multiply(x), up, self.f)
        )
        return self.down(h if self.sub_norm is None else self.sub_norm(h))


class Head(Linear):
    """The head: a matrix (with tied embeddings, the embedding), and before it, if the configuration
    says so, a dense layer, an activation and a norm."""

    def __init__(self, build: Build, n_out: int, tied: bool) -> None:
        c = build.config
        d, h = c["d_model"], cfg.head(c)
        super().__init__(build, "head", d, n_out)
        if tied:
            self.weight, self.weights = None, "f32"
        self.f = cfg.FFN | {"act": h["act"]}
        self.dense = Linear(build, "head.dense", d, d) if h["dense"] else None
        self.norm = Norm(build, "head.norm", d) if h["norm"] else None

    def front(self, x: Tensor) -> Tensor:
        """The input of the matrix."""
        if self.dense is not None:
            x = activate(self.dense(x), None, self.f)
        return x if self.norm is None else self.norm(x)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.front(x))


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023), as self-attention or cross-attention. x (B, T, d) ->
    (B, T, d)."""

    def __init__(self, build: Build, role: str, a: Config) -> None:
        super().__init__()
        d, hd = build.config["d_model"], a["head_dim"]
        self.a, self.scale = a, a["multiplier"] or hd**-0.5
        if not a["causal"] and (a["window"] or a["sinks"]):
            raise ValueError(f"{role}: a window or sinks, expected causal attention")
        for name, heads in (("q", a["n_heads"]), ("k", a["n_kv_heads"]), ("v", a["n_kv_heads"])):
            self.add_module(name, Linear(build, f"{role}.{name}", d, heads * hd))
            if a["qk_norm"] != "none" and name != "v":
                width = hd if a["qk_norm"] == "head" else heads * hd
                self.add_module(f"{name}_norm", Norm(build, f"{role}.{name}_norm", width))
        self.o = Linear(build, f"{role}.o", a["n_heads"] * hd, d)
        self.sub_norm = (
            Norm(build, f"{role}.sub_norm", a["n_heads"] * hd) if a["sub_norm"] else None
        )
        self.sinks = nn.Parameter(torch.zeros(a["n_heads"])) if a["sinks"] else None
        self.rotary = build.config["positions"] == "rope" and a["rope"]["kind"] != "none"
        if self.rotary:
            cos, sin = rope.tables(a["rope"], build.config["context_length"])
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)
        self.kv_dtype = torch.float32  # float16: K and V rounded as in a half-precision cache

    def _heads(self, x: Tensor, name: str) -> Tensor:
        """(B, T, d) -> (B, heads, T, head_dim), with norm and rotation where they apply."""
        y, norm, hd = self.get_submodule(name).multiply(x), self.a["qk_norm"], self.a["head_dim"]
        if norm == "whole" and name != "v":
            y = self.get_submodule(f"{name}_norm")(y)
        y = y.view(*y.shape[:2], -1, hd)
        if norm == "head" and name != "v":
            y = self.get_submodule(f"{name}_norm")(y)
        y = y.transpose(1, 2)
        if self.rotary and name != "v":
            steps = y.shape[2]
            y = rope.rotate(y, self.cos[:steps], self.sin[:steps], self.a["rope"]["kind"])
        return y if name == "q" else y.to(self.kv_dtype).to(y.dtype)

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Explicit softmax attention, for windows and sinks (a logit without a value)."""
        group, steps = q.shape[1] // k.shape[1], q.shape[2]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = q @ k.transpose(-1, -2) * self.scale
        ago = torch.arange(steps)[:, None] - torch.arange(steps)
        seen = (ago >= 0) & (ago < (self.a["window"] or steps))
        scores = scores.masked_fill(~seen.to(q.device), -math.inf)
        if self.sinks is not None:
            sink = self.sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            return torch.cat((scores, sink), -1).softmax(-1)[..., :-1] @ v
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor, over: Tensor | None = None, real: Tensor | None = None) -> Tensor:
        """over (B, S, d): the source of keys and values, if not x; real (B, S): which of its rows are not
        padding. A causal layer needs no `real`, because padding comes last."""
        x = self.q.prepare(x)
        seen = x if over is None else self.k.prepare(over)
        q, k, v = self._heads(x, "q"), self._heads(seen, "k"), self._heads(seen, "v")
        if self.sinks is None and not self.a["window"]:
            mask = None if real is None or self.a["causal"] else real[:, None, None, :]
            y = F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=self.a["causal"], scale=self.scale, enable_gqa=True
            )
        else:
            y = self._explicit(q, k, v)
        y = y.transpose(1, 2).flatten(2)
        return self.o(y if self.sub_norm is None else self.sub_norm(y))
