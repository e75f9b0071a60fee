# SPDX-License-Identifier: MIT
"""Mixture-of-Experts layers: SMoE, fine-grained, MH-MoE, X-MoE stacks, shared experts.

Sources: MH-MoE (Huang et al. 2024), eq. 1 to 4; X-MoE (Chi et al. 2022), eq. 2 and section 4.1;
XMoE (Yang et al. 2024). Expert weights are stacked (N, out, in); rows are grouped by expert once,
so that each expert computes one matrix product for all of its tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import config as cfg
from fused import GroupedProduct, GroupedScale
from layers import Build, FeedForward, Linear, Norm, activate
from quant import fake_activation, fake_weight
from routers import Route, Router, apply_capacity, stable_order

Config = dict[str, Any]


class Rows:
    """Rows sorted by expert: the number of rows of each expert, and the expert of every row."""

    def __init__(self, experts: Tensor, n_experts: int) -> None:
        self.expert = experts  # (P,) ascending
        self.counts = torch.bincount(experts, minlength=n_experts).tolist()


class GroupedLinear(nn.Module):
    """N linear layers of one shape; weight (N, out, in), bias (N, out) or None."""

    def __init__(self, build: Build, role: str, n: int, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weights, self.activations = cfg.precision_of(build.config, role)
        self.weight = nn.Parameter(torch.randn(n, n_out, n_in) * n_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(n, n_out)) if build.biases(role) else None

    def multiply(self, x: Tensor, rows: Rows) -> Tensor:
        """x (P, in), already quantised -> (P, out)."""
        y = GroupedProduct.apply(x, fake_weight(self.weight, self.weights), rows.counts)
        return y if self.bias is None else y + self.bias[rows.expert]


class GroupedNorm(Norm):
    """N norms of one shape; weight (N, f)."""

    def grouped(self, x: Tensor, rows: Rows) -> Tensor:
        """x (P, f), each row with the weight of its expert."""
        y = GroupedScale.apply(self.plain(x), self.weight, rows.counts)
        return y if self.bias is None else y + self.bias[rows.expert]


class Experts(nn.Module):
    """N feed-forward experts of one shape on rows grouped by expert. (P, d) -> (P, d)."""

    def __init__(
        self, build: Build, role: str, n: int, d: int, f: Config, in_norm: bool = False
    ) -> None:
        super().__init__()
        self.f = f
        self.norm = GroupedNorm(build, f"{role}.norm", n, d) if in_norm else None
        self.gate = GroupedLinear(build, f"{role}.gate", n, d, f["d_ff"]) if f["gated"] else None
        self.up = GroupedLinear(build, f"{role}.up", n, d, f["d_ff"])
        self.down = GroupedLinear(build, f"{role}.down", n, f["d_ff"], d)
        has_sub = f["sub_norm"] and not in_norm
        self.sub_norm = GroupedNorm(build, f"{role}.sub_norm", n, f["d_ff"]) if has_sub else None

    def inputs(self, x: Tensor) -> Tensor:
        """Quantise rows once, before they are copied to each of their experts."""
        return fake_activation(x, self.up.activations) if self.norm is None else x

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        if self.norm is not None:
            x = fake_activation(self.norm.grouped(x, rows), self.up.activations)
        up = self.up.multiply(x, rows)
        h = (
            activate(up, None, self.f)
            if self.gate is None
            else activate(self.gate.multiply(x, rows), up, self.f)
        )
        if self.sub_norm is not None:
            h = self.sub_norm.grouped(h, rows)
        return self.down.multiply(fake_activation(h, self.down.activations), rows)


class Stack(nn.ModuleList):
    """X-MoE's expert: a stack of v + FFN(norm(v)). Returns E(x) - x, because the model adds the residual."""

    def inputs(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        v = x
        for block in self:
            v = v + block(v, rows)
        return v - x


class MoE(nn.Module):
    """One MoE layer of any kind. x (B, T, d), ids (B, T) -> (B, T, d); keeps its last `route`."""

    def __init__(self, build: Build, role: str, f: Config) -> None:
        super().__init__()
        m, d = f["moe"], build.config["d_model"]
        self.m, self.heads = m, m["n_subheads"]
        width, n = d // self.heads, m["n_experts"]
        both = self.heads > 1 or m["mh"]
        has_head, has_merge = (both if m[k] is None else m[k] for k in ("head", "merge"))
        self.head = Linear(build, f"{role}.head", d, d) if has_head else None
        self.merge = Linear(build, f"{role}.merge", d, d) if has_merge else None
        biased = f"{role}.router" + (".proj" if m["router"]["kind"] == "cosine" else "")
        self.router = Router(
            m["router"],
            n,
            width,
            build.config["vocab_size"],
            build.biases(biased),
            build.biases(f"{role}.router.selection_bias"),
        )
        if m["n_sublayers"]:
            self.experts: Any = Stack(
                Experts(build, f"{role}.experts.0.{s}", n, width, f, True)
                for s in range(m["n_sublayers"])
            )
        else:
            self.experts = Experts(build, f"{role}.experts.0", n, width, f)
        self.shared = self.shared_router = None
        if m["shared"]:
            self.shared = FeedForward(build, f"{role}.shared", d, f, m["shared"]["d_ff"])
            if m["shared"]["gated"]:
                self.shared.router = Linear(build, f"{role}.shared.router", d, 1)
        self.route: Route | None = None
        self.together = False  # at inference too, the batch shares a capacity

    def last_weights(self) -> list[Tensor]:
        """The matrices in which the output is linear, all of them together; of a stack of experts nearly so."""
        if self.merge is not None:
            last = [self.merge.weight]
        else:
            blocks = self.experts if isinstance(self.experts, Stack) else [self.experts]
            last = [block.down.weight for block in blocks]
        return last if self.shared is None else [*last, self.shared.down.weight]

    def _experts(self, x: Tensor, route: Route) -> Tensor:
        """x (R, d / h) -> the weighted sum over the kept pairs, (R, d / h)."""
        pair = route.kept.flatten().nonzero()[:, 0]
        expert = route.indices.flatten()[pair]
        order = stable_order(expert, self.m["n_experts"])
        pair, expert = pair[order], expert[order]
        row, weight = pair // route.kept.shape[1], route.weights.flatten().index_select(0, pair)
        y = self.experts(self.experts.inputs(x).index_select(0, row), Rows(expert, self.m["n_experts"]))
        return torch.zeros_like(x).index_add(0, row, y * weight[:, None])

    def forward(self, x: Tensor, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """real (B, T): which rows are not padding. Padding is not routed and its output is 0; all other
        rows then count as one call."""
        if real is not None:
            return torch.zeros_like(x).masked_scatter(real[..., None], self(x[real][None], ids[real][None]))
        u = x if self.head is None else self.head(x)
        sub = u.reshape(-1, x.shape[-1] // self.heads)  # row a h + j: sub-token j of token a
        self.route = self.router(sub, ids.reshape(-1).repeat_interleave(self.heads))
        # In training the batch shares a capacity; at inference each sequence is a separate call.
        n_calls = 1 if self.training or self.together else x.shape[0]
        apply_capacity(self.route, self.m["n_experts"], self.m["capacity"], n_calls)
        y = self._experts(sub, self.route).view_as(x)
        if self.merge is not None:
            y = self.merge(y)
        if self.shared is not None:
            s = self.shared(x)
            y = y + (torch.sigmoid(self.shared.router(x)) * s if self.m["shared"]["gated"] else s)
        return y
