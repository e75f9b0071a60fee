# SPDX-License-Identifier: MIT
"""The training of a router besides the task's loss: balance losses and BASE's assignment.

One form serves all balance losses: L = N sum_i f_i P_i, with P_i the mean over tokens of
softmax(scores / tau_0) and f_i the share of tokens whose first choice is expert i, counted before
capacity and without gradient. It is 1 if experts are used equally. See X-MoE (Chi et al. 2022,
eq. 9), XMoE (Yang et al. 2024, A.2), Switch (Fedus et al. 2021, eq. 4); BASE (Lewis et al. 2021)
has no such loss and balances through its assignment.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

TAU_0 = {"softmax": 0.3, "sigmoid": 0.07}  # X-MoE: the initial value of tau, and the constant of the loss
EMBEDDING_NORM = 0.1  # X-MoE, section 3.1


class NonFinite(ValueError):
    """A score is NaN or infinite."""


def check_finite(scores: Tensor) -> None:
    """scores of any shape; raises NonFinite."""
    if not scores.isfinite().all():
        raise NonFinite("a router's score is NaN or infinite")


def balance_loss(
    scores: Tensor,
    tau_0: float = 1.0,
    k: int = 1,
    count: str = "first",
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """scores (T, N) before the softmax -> (loss (), share f (N,)).

    count "first": f counts the first choice of each token, for threshold and top-k routers alike;
    "all": the first k (Mixtral). mask (T,): the rows that are not padding.
    """
    if not (np.isfinite(tau_0) and tau_0 > 0):
        raise ValueError(f"tau_0: expected a number above 0, found {tau_0}")
    if count not in ("first", "all"):
        raise ValueError(f"count: expected first or all, found {count}")
    n = scores.shape[1]
    if not 1 <= k <= n:
        raise ValueError(f"k: expected 1..{n}, found {k}")
    check_finite(scores)
    real = scores if mask is None else scores[mask.bool()]
    probs = (real / tau_0).softmax(dim=-1)
    if count == "first":
        taken = real.argmax(dim=-1)
    else:
        taken = torch.sort(real, dim=-1, descending=True, stable=True).indices[:, :k]
    share = torch.bincount(taken.flatten(), minlength=n).to(probs.dtype) / taken.numel()
    return n * (share * probs.mean(dim=0)).sum(), share


def balanced_assignment(scores: Tensor) -> Tensor:
    """scores (T, N) -> (T,) experts: the assignment of the highest sum of scores in which every
    expert gets floor(T / N) or ceil(T / N) tokens (BASE, eq. 1)."""
    check_finite(scores)
    z = scores.detach().double().cpu().numpy()
    t, n = z.shape
    least, most = t // n, -(-t // n)
    # A column is a place of an expert. Dummy rows fill the unused places. They may only take the last
    # place of an expert, so that every expert gets at least floor(T / N) tokens.
    spare = n * most - t
    cost = np.repeat(-z, most, axis=1)
    if spare:
        nobody = np.full((spare, n * most), np.inf)
        nobody[:, most - 1 :: most] = 0.0
        cost = np.concatenate((cost, nobody))
    assert least == most or spare < n
    places = linear_sum_assignment(cost)[1][:t] // most
    return torch.as_tensor(places, device=scores.device)


def unit_embeddings(e: Tensor, norm: float = EMBEDDING_NORM) -> Tensor:
    """e (N, d_e) with every row scaled to length `norm`; a row of zeros stays (X-MoE, section 3.1)."""
    length = e.norm(dim=-1, keepdim=True)
    return torch.where(length > 0, e * (norm / length.clamp_min(torch.finfo(e.dtype).tiny)), e)
