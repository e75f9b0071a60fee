# SPDX-License-Identifier: MIT
"""Compare the trainer's own functions with golden cases: losses with gradients, the gate with a
learnt temperature, BASE's assignment, costs.

    python check_losses.py FILE
prints "N passed, M failed" and exits with 1 if a case failed. FILE holds {"format": 1, "tol":
{"rtol", "atol"}, "cases": [{"id", "fn", "in", "par", "out" or "error"}]}; a tensor is {"shape",
"type", "data"}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import costs
import losses
from routers import LEAST_TAU, cosine_route, threshold_route

TYPES = {"float": torch.float64, "int": torch.int64, "bool": torch.bool}
Case = dict[str, Any]


def tensor(value: Case) -> Tensor:
    """A golden tensor; "nan", "inf" and "-inf" are strings."""
    data = [float(v) if isinstance(v, str) else v for v in value["data"]]
    return torch.tensor(data, dtype=TYPES[value["type"]]).reshape(value["shape"])


def balance(scores: Tensor, mask: Tensor | None = None, **par: Any) -> Case:
    scores = scores.requires_grad_()
    loss, share = losses.balance_loss(scores, mask=mask, **par)
    loss.backward()
    return {"loss": loss, "grad": scores.grad, "share": share}


def cosine_balance(scores: Tensor, tau0: float = 0.3, mask: Tensor | None = None) -> Case:
    """The learnt tau is not part of the loss, so it has no gradient."""
    return balance(scores, mask, tau_0=tau0) | {"grad_tau": torch.zeros(1)}


def threshold_balance(logits: Tensor, t: float = 0.9, mask: Tensor | None = None) -> Case:
    """The loss of the route that the threshold takes: it counts first choices, whatever experts are taken."""
    route = threshold_route(logits, {"t": t})
    return balance(route.scores, mask)


def switch_balance(logits: Tensor, mask: Tensor | None = None, **par: Any) -> Case:
    return balance(logits, mask, **par)


def gate(
    scores: Tensor, grad_weights: Tensor, tau: float, k: int = 1, gating: str = "softmax",
    normalize_topk: bool | None = None, tau_min: float = LEAST_TAU,
) -> Case:
    if not tau_min >= LEAST_TAU:
        raise NotImplementedError(f"tau_min: the router has {LEAST_TAU:g}, the case {tau_min:g}")
    if not 0 < tau < float("inf"):
        raise ValueError(f"tau: expected a number above 0, found {tau:g}")
    own = {} if normalize_topk is None else {"topk_norm": normalize_topk}
    learnt = torch.tensor(tau, dtype=scores.dtype, requires_grad=True)
    scores = scores.requires_grad_()
    route = cosine_route(scores, {"k": k, "gate": gating, **own}, learnt.clamp_min(tau_min))
    route.weights.backward(grad_weights)
    return {
        "indices": route.indices,
        "weights": route.weights,
        "grad_scores": scores.grad,
        "grad_tau": learnt.grad.reshape(1),
    }


def embeddings(embeddings: Tensor, norm: float = losses.EMBEDDING_NORM) -> Case:
    return {"y": losses.unit_embeddings(embeddings, norm)}


def assignment(scores: Tensor) -> Case:
    experts = losses.balanced_assignment(scores)
    taken = scores.gather(1, experts[:, None])[:, 0]
    return {"assignment": experts, "objective": taken.sum(), "weights": taken.sigmoid()}


def parity(**par: Any) -> Case:
    width, n = costs.mh_moe_parity(**par)
    return {"d_mh": torch.tensor([width]), "n_mh": torch.tensor([n])}


FUNCTIONS: dict[str, Callable[..., Case]] = {
    "cosine_balance_loss": cosine_balance,
    "threshold_balance_loss": threshold_balance,
    "switch_balance_loss": switch_balance,
    "gate_backward": gate,
    "renorm_embeddings": embeddings,
    "balanced_assignment": assignment,
    "moe_cost": costs.moe_cost,
    "mh_moe_parity": parity,
    "xmoe_cost": costs.xmoe_cost,
}


def difference(name: str, want: Any, found: Any, tol: Case) -> str:
    """The error of an output, or an empty string."""
    if not isinstance(want, dict):
        return "" if found == want else f"{name}: expected {want}, found {found}"
    expected = tensor(want)
    found = found.detach().reshape(expected.shape)
    if want["type"] == "float":
        same = torch.allclose(found.double(), expected, tol["rtol"], tol["atol"])
    else:
        same = torch.equal(found.to(expected.dtype), expected)
    return "" if same else f"{name}: expected {expected.tolist()}, found {found.tolist()}"


def fault(case: Case, tol: Case) -> str:
    """The error of a case, or an empty string."""
    given = {name: tensor(value) for name, value in case["in"].items()}
    if case["fn"] not in FUNCTIONS:
        return f"unknown function {case['fn']}"
    try:
        out = FUNCTIONS[case["fn"]](**given, **case["par"])
    except (TypeError, NotImplementedError) as e:  # a parameter that the function does not have
        return str(e)
    except losses.NonFinite as e:
        return "" if case.get("error") == "non_finite" else str(e)
    except ValueError as e:
        return "" if case.get("error") in ("range", "shape") else str(e)
    if "error" in case:
        return f"expected the error {case['error']}, found a result"
    missing = [f"no {name}" for name in case["out"] if name not in out]
    wrong = [difference(n, want, out[n], tol) for n, want in case["out"].items() if n in out]
    return "; ".join(missing + [w for w in wrong if w])


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: check_losses.py FILE", file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        golden = json.load(file)
    if golden["format"] != 1:
        print(f"{sys.argv[1]}: expected format 1, found {golden['format']}", file=sys.stderr)
        return 2
    failed = 0
    for case in golden["cases"]:
        found = fault(case, golden["tol"] | (case.get("tol") or {}))
        if found:
            failed += 1
            print(f"{case['id']} ({case['fn']}): {found}")
    print(f"{len(golden['cases']) - failed} passed, {failed} failed")
    return 1 if failed or not golden["cases"] else 0


if __name__ == "__main__":
    sys.exit(main())
