# SPDX-License-Identifier: MIT
"""Quantisers with straight-through gradients: the runtime's formats in PyTorch.

Sources: "The Era of 1-bit LLMs: Training Tips, Code and FAQ", figures 3 and 4 (absmean ternary
weights, absmax int8 activations); int8 rows and blocks are the runtime's own formats.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

EPS = 1e-5
BLOCK = 256


class _Straight(torch.autograd.Function):
    """Forward: the quantised value. Backward: the unchanged gradient (Bengio et al. 2013)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, quantise: Any) -> Tensor:
        return quantise(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def absmean_ternary(w: Tensor) -> tuple[Tensor, Tensor]:
    """w (..., out, in) -> codes in {-1, 0, 1}, scale (..., 1, 1): one scale per matrix.

    scale = max(mean |w|, 1e-5); code = clip(round_half_even(w / scale), -1, 1).
    """
    scale = w.abs().mean(dim=(-2, -1), keepdim=True).clamp_min(EPS)
    return (w / scale).round_().clamp_(-1, 1), scale


def int8_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    """w (..., out, in) -> codes in -127..127, scale (..., out, 1) = absmax / 127, or 1 if zero."""
    amax = w.abs().amax(dim=-1, keepdim=True)
    scale = torch.where(amax > 0, amax / 127, torch.ones_like(amax))
    return (w / scale).round_().clamp_(-127, 127), scale


def weight_value(w: Tensor, kind: str) -> Tensor:
    """The values of a matrix after storage as `kind`, in the same shape."""
    if kind in ("ternary2", "ternary3"):
        codes, scale = absmean_ternary(w)
    elif kind == "int8":
        codes, scale = int8_rows(w)
    elif kind in ("bf16", "f16"):
        return w.to(torch.bfloat16 if kind == "bf16" else torch.float16).to(w.dtype)
    else:
        return w
    return codes.mul_(scale)


def _largest(x: Tensor) -> Tensor:
    """The largest absolute value of each row, (..., 1)."""
    return torch.maximum(x.amax(dim=-1, keepdim=True), x.amin(dim=-1, keepdim=True).neg_())


def _a8(x: Tensor) -> Tensor:
    """Per-token int8: s = 127 / max(amax, 1e-5), code = clip(round(x s), -128, 127)."""
    s = 127.0 / _largest(x).clamp_min_(EPS)
    return (x * s).round_().div_(s)  # the clip never acts, because no |x s| is above 127 except for rounding


def _a8_block(x: Tensor) -> Tensor:
    """int8, a scale max(amax, 1e-5) / 127 per 256 inputs, codes in -127..127; x (..., in)."""
    parts = []
    for part in x.split(BLOCK, dim=-1):
        scale = _largest(part).clamp_min_(EPS).div_(127.0)
        parts.append((part / scale).round_().mul_(scale))
    return torch.cat(parts, dim=-1)


def fake_weight(w: Tensor, kind: str) -> Tensor:
    """The stored value of `w` forward, the identity backward."""
    return w if kind in ("auto", "f32") else _Straight.apply(w, lambda v: weight_value(v, kind))


def fake_activation(x: Tensor, kind: str) -> Tensor:
    """The quantised activation forward, the identity backward; x (..., in)."""
    if kind == "f32":
        return x
    return _Straight.apply(x, _a8 if kind == "a8" else _a8_block)
