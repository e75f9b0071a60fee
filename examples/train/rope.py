# SPDX-License-Identifier: MIT
"""Rotary position embedding: half-split and interleaved, partial, with the common scalings.

Sources: RoFormer (Su et al. 2021), eq. 34; YaRN (Peng et al. 2023), section 3; LongRoPE (Ding et
al. 2024); Llama 3.1's frequency rule. The scalings follow Hugging Face's formulas.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fused import Rotation

Config = dict[str, Any]


def _llama3(inv: Tensor, s: Config) -> Tensor:
    """Low frequencies are divided by the factor, high ones kept, with a ramp between."""
    wavelength = 2 * math.pi / inv
    old, low, high = s["original_context"], s["low_freq_factor"], s["high_freq_factor"]
    smooth = (old / wavelength - low) / (high - low)
    mixed = (1 - smooth) * inv / s["factor"] + smooth * inv
    out = torch.where(wavelength > old / low, inv / s["factor"], mixed)
    return torch.where(wavelength < old / high, inv, out)


def _yarn(inv: Tensor, s: Config, dims: int, theta: float) -> tuple[Tensor, float]:
    """NTK by parts: a ramp between interpolation and extrapolation, and the cos/sin factor."""

    def dim_of(rotations: float) -> float:
        return (
            dims
            * math.log(s["original_context"] / (rotations * 2 * math.pi))
            / (2 * math.log(theta))
        )

    low, high = dim_of(s.get("beta_fast", 32)), dim_of(s.get("beta_slow", 1))
    if s.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dims // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    factor = s.get("attention_factor")
    if factor is None:
        factor = 0.1 * math.log(s["factor"]) + 1.0 if s["factor"] > 1 else 1.0
    return inv / s["factor"] * ramp + inv * (1 - ramp), factor


def _longrope(inv: Tensor, s: Config, context: int) -> tuple[Tensor, float]:
    """Per-frequency divisors. The long list is used if the model's context is longer than the original
    one. The rule does not depend on the text, so later tokens never change earlier positions."""
    is_long = context > s["original_context"]
    divisors = torch.tensor(s["long_factor"] if is_long else s["short_factor"], dtype=torch.float64)
    factor = s.get("attention_factor")
    if factor is None:
        scale = context / s["original_context"]
        factor = (
            math.sqrt(1 + math.log(scale) / math.log(s["original_context"])) if scale > 1 else 1.0
        )
    return inv / divisors, factor


def tables(rope: Config, context: int) -> tuple[Tensor, Tensor]:
    """cos, sin (context, dims / 2) in float32, computed in float64."""
    dims, theta, scaling = rope["dims"], rope["theta"], rope.get("scaling")
    inv = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    factor, kind = 1.0, scaling["kind"] if scaling else "none"
    if kind == "linear":
        inv = inv / scaling["factor"]
    elif kind == "llama3":
        inv = _llama3(inv, scaling)
    elif kind == "yarn":
        inv, factor = _yarn(inv, scaling, dims, theta)
    elif kind == "longrope":
        inv, factor = _longrope(inv, scaling, context)
    elif kind != "none":
        raise ValueError(f"unknown rope scaling {kind!r}")
    angle = torch.arange(context, dtype=torch.float64)[:, None] * inv
    return (angle.cos() * factor).float(), (angle.sin() * factor).float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor, kind: str) -> Tensor:
    """x (..., T, head_dim), cos and sin (T, dims / 2): rotates the first `dims` entries."""
    return Rotation.apply(x, cos, sin, kind)
