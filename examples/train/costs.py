# SPDX-License-Identifier: MIT
"""The cost of an MoE layer, and sizes with which two kinds of layers cost the same.

A product (1, a) (a, b) is b (2 a - 1) operations. As in the papers, router, activation, the product
inside a gated unit, and biases are not counted.
"""

from __future__ import annotations

import math


def moe_cost(
    tokens: int,
    d: int,
    f: int,
    k: int,
    experts: int,
    heads: int = 1,
    glu: bool = False,
    head: bool = False,
    merge: bool = False,
) -> dict[str, int]:
    """Operations and parameters of an SMoE (heads 1) or MH-MoE layer (Huang et al. 2024, eq. 6, 7
    and 9). d: model width, f: inner width of an expert, k: experts per (sub-)token."""
    if heads < 1 or d % heads:
        raise ValueError(f"heads: expected a divisor of {d}, found {heads}")
    width, square, matrices = d // heads, int(head) + int(merge), 3 if glu else 2
    expert = (matrices - 1) * f * (2 * width - 1) + width * (2 * f - 1)
    return {
        "flops": tokens * (square * d * (2 * d - 1) + heads * k * expert),
        "flops_leading": tokens * (2 * square * d * d + 2 * matrices * d * f * k),
        "params": square * d * d + matrices * width * f * experts,
        "router_params": experts * width,
    }


def mh_moe_parity(
    d: int,
    d_moe: int,
    k: int,
    heads: int,
    n_experts: int,
    glu: bool = False,
    k_mh: int | None = None,
    projections: int = 2,
) -> tuple[float, float]:
    """(inner width, number of experts) of the MH-MoE layer with the operations and parameters of an
    SMoE of n_experts experts of inner width d_moe, k of them active (eq. 8 and 9), not rounded.
    projections: the number of head and merge projections. k_mh: experts per sub-token (default k)."""
    matrices = 3 if glu else 2
    width = (d_moe * k - projections * d / matrices) / (k if k_mh is None else k_mh)
    if width <= 0:
        raise ValueError("head and merge alone cost more than the SMoE")
    rest = matrices * d * d_moe * n_experts - projections * d * d
    return width, rest / (matrices * (d / heads) * width)


def capacity(tokens: int, experts: int, gamma: float, min_capacity: int = 0) -> int:
    """The largest number of tokens of an expert (XMoE, Yang et al. 2024, eq. 3); gamma: capacity factor."""
    if not gamma > 0:
        raise ValueError(f"gamma: expected a number above 0, found {gamma}")
    wanted = gamma * tokens / experts
    return min(tokens, max(min_capacity, math.ceil(wanted - 1e-6 * max(1.0, wanted))))


def xmoe_cost(
    tokens: int, d: int, f: int, experts: int, gamma: float, glu: bool = False, min_capacity: int = 0
) -> dict[str, int]:
    """Operations of a layer with capacity, including unused places (XMoE, eq. 6)."""
    served = capacity(tokens, experts, gamma, min_capacity)
    slots = served * experts
    return {
        "capacity": served,
        "slots": slots,
        "flops": 2 * (3 if glu else 2) * d * f * slots,
    }
