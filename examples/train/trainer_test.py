"""Tests of the trainer: `python -m pytest examples/train`."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import check_losses
import export
from losses import EMBEDDING_NORM, balanced_assignment
from model import Model
from routers import Route, apply_capacity

CASES = Path(__file__).resolve().parents[2] / "tests/data/vectors/11_losses.json"


def small(router: dict[str, Any], **moe: Any) -> Model:
    torch.manual_seed(1)
    ffn = {"kind": "moe", "d_ff": 16, "gated": True, "act": "silu", "moe": {"n_experts": 8, "router": router, **moe}}
    rope = {"kind": "half", "dims": 8, "theta": 10000.0}
    attention = {"n_heads": 2, "n_kv_heads": 2, "head_dim": 8, "window": 0, "rope": rope}
    return Model(
        {
            "model_type": "moe_research",
            "layout_version": 1,
            "vocab_size": 50,
            "d_model": 16,
            "n_layers": 2,
            "context_length": 32,
            "layer_defaults": {"attention": attention, "ffn": ffn},
        }
    )


def text(rows: int = 3, length: int = 20) -> torch.Tensor:
    return torch.randint(50, (rows, length), generator=torch.Generator().manual_seed(2))


def step(model: Model, balance: float = 1.0) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    logits = model(text())
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text().flatten())
    (loss + balance * model.balance_loss()).backward()
    optimizer.step()
    model.settle_embeddings()


def test_a_threshold_of_one_is_balanced_too() -> None:
    model = small({"kind": "threshold", "t": 1.0})
    model(text())
    loss = model.balance_loss()
    loss.backward()
    assert abs(loss.item() - 1) > 1e-4
    assert model.layers[0].moe.router.weight.grad.abs().max() > 0


def test_tau_is_learnt_and_exported(tmp_path: Path) -> None:
    model = small({"kind": "cosine", "k": 2, "gate": "softmax", "tau": 0.3})
    assert model.layers[0].moe.router.embedding.weight.shape == (8, 4)
    before = copy.deepcopy(model)
    step(model)
    learnt = [layer.router.tau.item() for layer in model.moe_layers()]
    assert all(abs(t - 0.3) > 1e-4 for t in learnt)
    export.write(before, tmp_path / "before")
    assert json.loads((tmp_path / "before/config.json").read_text()) == before.config
    export.write(model, tmp_path / "after")
    read = export.read(tmp_path / "after")
    assert [layer.router.tau.item() for layer in read.moe_layers()] == learnt
    assert torch.equal(read(text()), model.eval()(text()))


def test_the_balance_loss_has_a_temperature_of_its_own() -> None:
    model = small({"kind": "cosine", "k": 1, "gate": "sigmoid", "tau": 0.07})
    model(text())
    loss = model.balance_loss()
    loss.backward()
    router = model.layers[-1].moe.router  # lower ones reach this layer's scores
    assert router.tau_0 == 0.07
    assert router.tau.grad is None or router.tau.grad.item() == 0
    assert router.embedding.weight.grad.abs().max() > 0


def test_expert_embeddings_keep_their_length() -> None:
    model = small({"kind": "cosine", "k": 1, "gate": "softmax", "tau": 0.3})
    model.settle_embeddings()
    for _ in range(2):
        lengths = model.layers[1].moe.router.embedding.weight.norm(dim=-1)
        assert torch.allclose(lengths, torch.full_like(lengths, EMBEDDING_NORM))
        step(model)


def test_base_is_balanced_in_training_alone() -> None:
    model = small({"kind": "base"})
    model(text())
    counts = torch.bincount(model.layers[0].moe.route.indices.flatten(), minlength=8)
    assert counts.min() >= 60 // 8 and counts.max() <= -(-60 // 8)
    model.eval()(text())
    route = model.layers[0].moe.route
    assert torch.equal(route.indices[:, 0], route.probs.argmax(dim=-1))
    assert model.balance_loss().item() == 0


def test_an_assignment_beats_the_greedy_one() -> None:
    scores = torch.tensor([[3.0, 2.0], [3.0, 0.0], [1.0, 0.5], [0.0, -1.0]])
    experts = balanced_assignment(scores)
    assert torch.bincount(experts).tolist() == [2, 2]
    assert scores.gather(1, experts[:, None]).sum().item() == 3.0 + 2.0 + 0.5 + 0.0


def test_capacity_counts_the_batch_in_training_and_a_sequence_at_inference() -> None:
    route = Route(torch.zeros(8, 1, dtype=torch.long), torch.ones(8, 1), torch.ones(8, 1).bool(),
                  torch.full((8, 2), 0.5))
    capacity = {"gamma": 1.0, "min_capacity": 0, "order": "arrival"}
    whole, halves = copy.deepcopy(route), copy.deepcopy(route)
    apply_capacity(whole, 2, capacity)
    apply_capacity(halves, 2, capacity, n_calls=2)
    assert whole.kept[:, 0].tolist() == [True] * 4 + [False] * 4
    assert halves.kept[:, 0].tolist() == [True, True, False, False] * 2

    model = small({"kind": "softmax", "k": 1}, capacity=capacity).eval()
    both = model(text(2))
    alone = torch.cat([model(text(2)[i : i + 1]) for i in range(2)])
    assert torch.allclose(both, alone, atol=1e-6)


def test_golden_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["check_losses.py", str(CASES)])
    assert check_losses.main() == 0
