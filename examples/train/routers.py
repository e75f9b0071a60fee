# SPDX-License-Identifier: MIT
"""Routers: the experts of a token and their weights. Always in float32.

Every router maps its input rows (R, d) to a Route; in MH-MoE layers R counts sub-tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from losses import TAU_0, balanced_assignment

Config = dict[str, Any]

LEAST_TAU = 1e-4  # X-MoE's temperature below this counts as this


@dataclass
class Route:
    indices: Tensor  # (R, K) experts, best first
    weights: Tensor  # (R, K)
    kept: Tensor  # (R, K) bool: pairs that are computed
    probs: Tensor | None  # (R, N) softmax over all experts, which a capacity ranks by
    scores: Tensor | None = None  # (R, N) before the softmax; None: no balance loss


def order_desc(v: Tensor) -> Tensor:
    """The places of the last axis in descending order of their values; ties go to the lower place. On a CPU the order of
    integers that hold a float32 and a place is that order, and NumPy sorts them five times as fast as torch.sort does."""
    n = v.shape[-1]
    if v.device.type != "cpu" or v.dtype != torch.float32 or n > 2**20:
        return torch.sort(v, dim=-1, descending=True, stable=True).indices
    bits = (v.detach() + 0.0).numpy().view(np.int32).astype(np.int64)  # + 0.0: -0 equals 0
    falling = np.where(bits < 0, bits & 0x7FFFFFFF, ~bits)
    keys = (falling << 20) | np.arange(n)
    keys.sort(axis=-1)
    return torch.from_numpy(keys & (2**20 - 1))


def stable_order(experts: Tensor, n: int) -> Tensor:
    """torch.argsort(experts, stable=True) for experts (P,) below n. Bytes are sorted ten times faster than long integers."""
    return torch.argsort(experts.to(torch.uint8) if n <= 256 else experts, stable=True)


def first_choices(v: Tensor, k: int) -> Tensor:
    """The first k of order_desc(v), (R, k). In training ties of k > 1 go to any expert: topk is faster than a
    stable sort, and ties do not matter there."""
    if k == 1:
        return v.argmax(dim=-1, keepdim=True)
    return v.topk(k, dim=-1).indices if v.requires_grad else order_desc(v)[:, :k]


def _finish(w: Tensor, kept: Tensor, r: Config) -> Tensor:
    """Applies a router's weight rule to the chosen pairs: raw, renormalised or one, times the scale."""
    rule = r.get("weights", "raw")
    if rule not in ("raw", "renormalised", "one"):
        raise ValueError(f"router: weights: expected raw, renormalised or one, found {rule!r}")
    w = (torch.ones_like(w) if rule == "one" else w) * kept
    if rule == "renormalised":
        w = w / w.sum(dim=-1, keepdim=True)
    return w * r.get("scale", 1.0)


def softmax_route(z: Tensor, r: Config) -> Route:
    """Top-k of a softmax (Switch, Mixtral, OLMoE; MH-MoE eq. 1 and 3). z (R, N) logits."""
    probs = z.softmax(dim=-1)
    index = first_choices(z, r["k"])
    if r.get("weights", "raw") == "chosen":
        w = z.gather(1, index).softmax(dim=-1) * r.get("scale", 1.0)
    else:
        w = _finish(probs.gather(1, index), torch.ones_like(index, dtype=torch.bool), r)
    return Route(index, w, torch.ones_like(index, dtype=torch.bool), probs, z)


def threshold_route(z: Tensor, r: Config) -> Route:
    """The fewest experts whose probabilities reach t (XMoE, Yang et al. 2024, eq. 5)."""
    if not 0 <= r["t"] <= 1:
        raise ValueError(f"router: t: expected 0..1, found {r['t']:g}")
    probs, index = z.softmax(dim=-1), order_desc(z)
    p = probs.gather(1, index)
    before = torch.cat((torch.zeros_like(p[:, :1]), p.cumsum(dim=-1)[:, :-1]), dim=-1)
    rank = torch.arange(p.shape[1], device=p.device)
    kept = (before < r["t"]) | (rank < max(1, r.get("min_k", 0)))
    if r["t"] >= 1:
        kept = torch.ones_like(kept)
    if r.get("max_k", 0) > 0:
        kept = kept & (rank < r["max_k"])
    return Route(index, _finish(p, kept, r), kept, probs, z)


def sigmoid_route(z: Tensor, r: Config, selection_bias: Tensor | None) -> Route:
    """Sigmoid scores; the selection bias affects the choice only (DeepSeek-V3, eq. 16)."""
    scores = z.sigmoid()
    ranked = z if selection_bias is None else scores + selection_bias
    index = first_choices(ranked, r["k"])
    kept = torch.ones_like(index, dtype=torch.bool)
    return Route(index, _finish(scores.gather(1, index), kept, r), kept, z.softmax(dim=-1), z)


def sparsemixer_route(z: Tensor, r: Config) -> Route:
    """PhiMoE's top-2 by masking, in its inference form. z (R, N)."""
    alive = torch.ones_like(z, dtype=torch.bool)
    index, weight = [], []
    for _ in range(2):
        live = z.masked_fill(~alive, -math.inf)
        best = first_choices(live, 1)
        m = live.gather(1, best)
        masked = (m - z) / torch.maximum(z.abs(), m) > 2 * r.get("jitter", 0.01)
        p = z.masked_fill(masked | ~alive, -math.inf).softmax(dim=-1)
        index.append(best)
        weight.append(p.gather(1, best))
        alive = alive.scatter(1, best, False)
    kept = torch.ones(z.shape[0], 2, dtype=torch.bool, device=z.device)
    return Route(torch.cat(index, 1), torch.cat(weight, 1), kept, z.softmax(dim=-1), z)


def cosine_route(s: Tensor, r: Config, tau: Tensor) -> Route:
    """Cosine scores s (R, N) over a temperature tau () (X-MoE, Chi et al. 2022, eq. 7 and 8), which
    is learnt, one per layer, and at least LEAST_TAU."""
    if not 1 <= r["k"] <= s.shape[-1]:
        raise ValueError(f"router: k: expected 1..{s.shape[-1]}, found {r['k']}")
    if r["gate"] not in TAU_0:
        raise ValueError(f"router: gate: expected one of {', '.join(TAU_0)}, found {r['gate']}")
    v = s / tau.clamp_min(LEAST_TAU)
    index = first_choices(s, r["k"])
    chosen, probs = v.gather(1, index), v.softmax(dim=-1)
    if r["gate"] == "softmax":
        over_chosen = r["k"] > 1 and r.get("topk_norm", True)
        w = chosen.softmax(dim=-1) if over_chosen else probs.gather(1, index)
    else:
        w = chosen.sigmoid()
        if r.get("topk_norm", False):
            w = w / w.sum(dim=-1, keepdim=True)
    return Route(index, w, torch.ones_like(index, dtype=torch.bool), probs, s)


def apply_capacity(route: Route, n_experts: int, capacity: Config, n_calls: int = 1) -> None:
    """Drop pairs over capacity (XMoE eq. 3); sets `route.kept`. The rows are those of `n_calls`
    consecutive calls of equal length, each with its own capacity."""
    if capacity["gamma"] <= 0:
        return
    route.kept = route.kept.clone()  # the gradient of the weights needs the original
    rows = route.indices.shape[0] // n_calls
    for begin in range(0, rows * n_calls, rows):
        part = slice(begin, begin + rows)
        probs = None if route.probs is None else route.probs[part]
        _refuse(Route(route.indices[part], route.weights[part], route.kept[part], probs),
                n_experts, capacity)


def _refuse(route: Route, n_experts: int, capacity: Config) -> None:
    """`apply_capacity` for the rows of one call; modifies `route.kept` in place."""
    rows, gamma = route.indices.shape[0], capacity["gamma"]
    wanted = gamma * rows / n_experts
    limit = math.ceil(wanted - 1e-6 * max(1.0, wanted))
    limit = min(rows, max(capacity["min_capacity"], limit))
    p = (route.weights if route.probs is None else route.probs.gather(1, route.indices)).detach()
    row, rank = route.kept.nonzero(as_tuple=True)  # by row
    if capacity["order"] != "arrival":
        best = order_desc(p[row, rank])
        row, rank = row[best], rank[best]
    order = stable_order(rank, p.shape[1])
    row, rank = row[order], rank[order]
    experts = route.indices[row, rank]
    mine = stable_order(experts, n_experts)  # by expert, each in order of service
    counts = torch.bincount(experts, minlength=n_experts)
    before = torch.arange(len(mine)) - (counts.cumsum(0) - counts).repeat_interleave(counts).cpu()
    late = mine[(before >= limit).to(mine.device)]
    route.kept[row[late], rank[late]] = False


def _balanced(z: Tensor) -> Tensor:
    """BASE's assignment (R, 1), separately for n interleaved groups of rows, like the paper's workers:
    the time of a single assignment grows faster than quadratically."""
    out, n = torch.empty(z.shape[0], 1, dtype=torch.long, device=z.device), -(-z.shape[0] // 256)
    for first in range(n):
        out[first::n, 0] = balanced_assignment(z[first::n])
    return out


TRAINING_KEYS = ("rank", "identity")  # keys of a router that are not exported to config.json


class Router(nn.Module):
    """The router of one layer, with its parameters; the functions above implement each kind.

    Two keys are for training only. A softmax router with "rank" R scores E (W x) with W (R, d) and
    E (N, R) (X-MoE without its norms); its product is exported. A cosine router with "identity" has
    W = I (X-MoE without dimension reduction).
    """

    def __init__(
        self, r: Config, n_experts: int, d: int, vocab: int, bias: bool, selection_bias: bool
    ) -> None:
        super().__init__()
        self.r, self.kind = r, r["kind"]
        if self.kind == "hash":
            self.register_buffer("table", torch.randint(n_experts, (vocab,), dtype=torch.int32))
        elif self.kind == "cosine":
            identity = r.get("identity", False)
            d_e = d if identity else r.get("d_e", max(1, n_experts // 2))  # as X-MoE, section 4.1
            self.proj = nn.Linear(d, d_e, bias=bias)
            if identity:  # no dimension reduction
                nn.init.eye_(self.proj.weight).requires_grad_(False)
            self.embedding = nn.Embedding(n_experts, d_e)
            self.tau = nn.Parameter(torch.tensor(float(r["tau"])))
        else:
            rank = r.get("rank", d)
            self.weight = nn.Parameter(torch.randn(n_experts, rank) * rank**-0.5)
            self.reduce = nn.Parameter(torch.randn(rank, d) * d**-0.5) if "rank" in r else None
            self.bias = nn.Parameter(torch.zeros(n_experts)) if bias else None
        self.tau_0 = TAU_0[r["gate"]] if self.kind == "cosine" else 1.0  # of the balance loss
        self.selection_bias = nn.Parameter(torch.zeros(n_experts)) if selection_bias else None

    def _cosine(self, x: Tensor) -> Tensor:
        z, e = self.proj(x), self.embedding.weight
        if self.r.get("normalise_token", True):
            z = z / z.norm(dim=-1, keepdim=True).clamp_min(1e-4)
        return z @ (e / e.norm(dim=-1, keepdim=True).clamp_min(1e-4)).T

    def forward(self, x: Tensor, ids: Tensor) -> Route:
        """x (R, d), ids (R,) token ids (for the hash router only)."""
        if self.kind == "hash":
            index = self.table[ids].long()[:, None]
            ones = torch.ones_like(index, dtype=torch.bool)
            return Route(index, ones.float(), ones, None)
        if self.kind == "cosine":
            return cosine_route(self._cosine(x), self.r, self.tau)
        z = nn.functional.linear(x if self.reduce is None else x @ self.reduce.T, self.weight, self.bias)
        if self.kind == "base":  # Lewis et al. 2021: eq. 1 in training, eq. 3 at inference
            index = _balanced(z) if self.training else first_choices(z, 1)
            kept = torch.ones_like(index, dtype=torch.bool)
            return Route(index, z.gather(1, index).sigmoid(), kept, z.softmax(dim=-1))
        if self.kind == "sigmoid":
            return sigmoid_route(z, self.r, self.selection_bias)
        routes = {
            "softmax": softmax_route,
            "threshold": threshold_route,
            "sparsemixer": sparsemixer_route,
        }
        return routes[self.kind](z, self.r)
