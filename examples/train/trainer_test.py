# SPDX-License-Identifier: MIT
"""Tests of the trainer: `python -m pytest examples/train`."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import check_config
import check_losses
import claims
import config as cfg
import encoders
import evaluate
import export
import fused
import language
import parity
import rows
import runner
import results
import runtime
import sample
import steps
import tables
import texts
import train
import translation
from data import FileStream, train_tokenizer
from losses import EMBEDDING_NORM, balanced_assignment
from model import Model
from plan import Disagreement, output_difference, perplexity_difference
from recipes import settings
from routers import Route, apply_capacity, order_desc, softmax_route, stable_order, threshold_route
from steps import Steps, calm_outputs, output_sizes, with_capacity
from stories.engine import Rng

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


def test_a_negative_tau_is_exported_as_what_the_router_uses(tmp_path: Path) -> None:
    model = small({"kind": "cosine", "k": 1, "gate": "sigmoid", "tau": 0.07})
    for layer in model.moe_layers():
        layer.router.tau.data.fill_(-0.01)
    export.write(model, tmp_path)
    read = export.read(tmp_path)
    assert all(layer.router.tau.item() == pytest.approx(1e-4) for layer in read.moe_layers())
    assert torch.equal(read(text()), model.eval()(text()))


def test_tied_experts_are_noticed() -> None:
    model = small({"kind": "cosine", "k": 1, "gate": "softmax", "tau": 0.3})
    model(text())
    assert not encoders.tied(model)
    scores = model.moe_layers()[0].route.scores
    best = scores[5].argmax()
    scores.data[5, (best + 1) % 8] = scores[5, best] - 1e-8
    assert encoders.tied(model)


def test_the_balance_loss_has_a_temperature_of_its_own() -> None:
    model = small({"kind": "cosine", "k": 1, "gate": "sigmoid", "tau": 0.07})
    model(text())
    loss = model.balance_loss()
    loss.backward()
    router = model.layers[-1].moe.router  # lower routers affect this layer's scores
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


def test_weights_of_one_and_rules_that_are_not_known() -> None:
    z = torch.tensor([[2.0, 1.0, 0.0, -3.0]])
    some = threshold_route(z, {"t": 0.9, "weights": "one", "scale": 0.5})
    assert some.kept.tolist() == [[True, True, False, False]]
    assert some.weights.tolist() == [[0.5, 0.5, 0.0, 0.0]]
    assert softmax_route(z, {"k": 2, "weights": "one"}).weights.tolist() == [[1.0, 1.0]]
    with pytest.raises(ValueError, match="expected raw, renormalised or one, found 'even'"):
        softmax_route(z, {"k": 2, "weights": "even"})
    small({"kind": "threshold", "t": 0.9, "weights": "one"})(text(2)).sum().backward()


def served_one_by_one(route: Route, n: int, gamma: float, order: str) -> torch.Tensor:
    """The pairs that are kept, by definition: ranked by rank, then by probability, then by row."""
    limit, used, kept = -(-int(gamma * len(route.indices)) // n), [0] * n, route.kept.clone()
    p = route.probs.gather(1, route.indices)
    asks = [(j, 0.0 if order == "arrival" else -float(p[a, j]), a) for a, j in kept.nonzero().tolist()]
    for j, _, a in sorted(asks):
        expert = int(route.indices[a, j])
        kept[a, j] = used[expert] < limit
        used[expert] += 1
    return kept


@pytest.mark.parametrize("order", ["priority", "arrival"])
def test_capacity_serves_in_the_order_of_the_paper(order: str) -> None:
    torch.manual_seed(3)
    probs = torch.randn(40, 8).softmax(dim=-1)
    index = torch.sort(probs, dim=-1, descending=True).indices
    kept = torch.rand(40, 8) < 0.7
    route = Route(index, probs.gather(1, index), kept, probs)
    wanted = served_one_by_one(route, 8, 2.0, order)
    apply_capacity(route, 8, {"gamma": 2.0, "min_capacity": 0, "order": order})
    assert torch.equal(route.kept, wanted)
    assert 0 < wanted.sum() < kept.sum()


def test_a_capacity_and_a_threshold_train() -> None:
    capacity = {"gamma": 1.0, "min_capacity": 0, "order": "priority"}
    model = small({"kind": "threshold", "t": 0.9}, capacity=capacity)
    before = model.layers[0].moe.router.weight.detach().clone()
    step(model)
    assert not torch.equal(model.layers[0].moe.router.weight, before)


def test_a_router_of_two_factors_is_exported_as_their_product(tmp_path: Path) -> None:
    model = small({"kind": "softmax", "k": 1, "weights": "raw", "rank": 3})
    step(model)
    export.write(model, tmp_path)
    read = export.read(tmp_path)
    assert torch.linalg.matrix_rank(read.layers[0].moe.router.weight) == 3
    assert torch.allclose(read(text()), model.eval()(text()), atol=1e-5)


def test_a_router_without_dimension_reduction_keeps_the_token(tmp_path: Path) -> None:
    model = small({"kind": "cosine", "k": 1, "gate": "softmax", "tau": 0.3, "identity": True})
    step(model)
    assert torch.equal(model.layers[0].moe.router.proj.weight, torch.eye(16))
    export.write(model, tmp_path)
    read = export.read(tmp_path)
    assert cfg.layer_config(read.config, 0)["ffn"]["moe"]["router"]["d_e"] == 16
    assert torch.equal(read(text()), model.eval()(text()))


def test_frozen_routers_and_experts_stay_from_their_step_on() -> None:
    model = small({"kind": "cosine", "k": 1, "gate": "softmax", "tau": 0.3})
    steps = Steps(model, settings(warmup=1, freeze_routing=2))
    states = []
    for _ in range(4):
        steps.one(text(), text(), 0.0)
        states.append({k: v.clone() for k, v in model.state_dict().items()})
    for name in ("router.proj.weight", "router.embedding.weight", "router.tau", "experts.up.weight", "experts.down.weight"):
        routers = [state[f"layers.0.moe.{name}"] for state in states]
        assert not torch.equal(routers[0], routers[1]), name
        assert torch.equal(routers[1], routers[3]), name
    assert not torch.equal(states[2]["embedding.weight"], states[3]["embedding.weight"])


def test_dropout_is_of_training_alone() -> None:
    model = small({"kind": "softmax", "k": 2})
    plain = model.eval()(text())
    model.set_dropout(0.5)
    assert torch.equal(model(text()), plain)
    assert not torch.equal(model.train()(text()), plain)


def test_dropout_of_experts_is_a_setting_of_its_own() -> None:
    model = small({"kind": "softmax", "k": 2})
    model.layers[0].attention = model.layers[1].attention = None  # only MoE layers are left
    plain = model.eval()(text())
    Steps(model.train(), settings("x-moe"), fresh=False)
    assert torch.equal(model(text()), plain)
    Steps(model, settings("x-moe", moe_dropout=0.5), fresh=False)
    assert not torch.equal(model(text()), plain)


def test_every_row_starts_with_outputs_of_one_size() -> None:
    """At a small width, which takes seconds for all rows, and one at its own."""
    ids = torch.randint(4, 768, (1, 64), generator=torch.Generator().manual_seed(3))
    small_ones = {f"{name.partition('@')[0]}@48" for name, _ in claims.planned() if "plain" not in name}
    for name in sorted(small_ones | {"mh-moe-2"}):
        row = rows.read(name)
        torch.manual_seed(1)
        model = Model(row.config, row.biases).eval()
        Steps(model, row.settings(10))
        sizes = output_sizes(model, ids, *([ids] if row.task == "translation" else []))
        assert sizes and all(0.13 < size < 0.28 for size in sizes), (name, sizes)


def test_without_an_even_start_raw_gates_are_small() -> None:
    sizes = {}
    for name in ("mh-moe-2-plain", "mh-moe-2-raw-plain"):
        torch.manual_seed(1)
        model = Model(rows.read(name).config)
        Steps(model, rows.read(name).settings(10))
        sizes[name] = output_sizes(model, torch.arange(4, 132)[None])[0]
    assert sizes["mh-moe-2-raw-plain"] < 0.4 * sizes["mh-moe-2-plain"] < 0.08


@pytest.mark.parametrize("more", [{}, {"mh": True}, {"shared": {"d_ff": 8, "gated": True}}, {"n_subheads": 2}])
def test_the_last_weights_scale_the_output(more: dict[str, Any]) -> None:
    layer = small({"kind": "softmax", "k": 2}, **more).layers[0].moe
    x = torch.randn(2, 5, 16)
    before = layer(x, text(2, 5))
    with torch.no_grad():
        for weight in layer.last_weights():
            weight.mul_(3)
    assert torch.allclose(layer(x, text(2, 5)), 3 * before, atol=1e-5)


def test_training_is_on_the_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code runs with a device that is not there: what is moved is recorded."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        assert steps.device() == "cuda"
    monkeypatch.setattr(steps, "device", lambda: "cuda")
    model, moved, real = small({"kind": "softmax", "k": 2}), [], torch.Tensor.to
    monkeypatch.setattr(model, "to", lambda where: moved.append(where) or model)
    monkeypatch.setattr(torch.Tensor, "to", lambda x, where: moved.append((where, tuple(x.shape))) or x if where == "cuda" else real(x, where))
    curve = steps.fit(model, settings(warmup=1), 3, lambda: (text(2), text(2)))
    assert moved == ["cuda", *[("cuda", (2, 20))] * 6, "cpu"]
    assert len(curve.losses) == 3 and curve.experts == [2.0] * 3 and curve.fluctuation == []


def test_routing_fluctuates_while_routers_learn() -> None:
    def run(lr: float) -> list[float]:
        torch.manual_seed(1)
        return steps.fit(small({"kind": "softmax", "k": 1}), settings(lr=lr, warmup=1), 20, lambda: (text(8), text(8))).fluctuation

    learnt, still = run(0.1), run(1e-12)
    assert len(learnt) == len(still) == steps.CURVE - 1
    assert max(learnt) > 0 and max(still) == 0


def test_a_capacity_can_count_windows_together() -> None:
    """As training does: eight windows of 20 tokens, of which one alone may refuse what the eight together do not."""
    model = small({"kind": "softmax", "k": 1}, capacity={"gamma": 1.0, "min_capacity": 0, "order": "priority"})
    ids = torch.randint(50, (8 * 32 + 1,), generator=torch.Generator().manual_seed(4)).tolist()
    alone, together = (evaluate.window_losses(model.eval(), ids, shared) for shared in (0, 8))
    assert [n for _, n in alone] == [n for _, n in together] == [31] * 8
    assert alone != together
    batch = torch.tensor(ids[: 8 * 32]).view(8, 32)
    logits = model.train()(batch[:, :-1]).double()  # in training the batch counts
    wanted = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none").sum(dim=1)
    assert [nats for nats, _ in together] == pytest.approx(wanted.tolist(), rel=1e-5)


def test_windows_are_evaluated_together_as_one_by_one() -> None:
    model = small({"kind": "threshold", "t": 0.9}, capacity={"gamma": 2.0, "min_capacity": 0, "order": "priority"}).eval()
    ids = text(1, 20 * 32 + 7)[0].tolist()
    found = evaluate.window_losses(model, ids)
    one = [torch.tensor([ids[i : i + 32]]) for i in range(0, len(ids), 32)]
    with torch.no_grad():
        wanted = [torch.nn.functional.cross_entropy(model(w[:, :-1])[0], w[0, 1:], reduction="sum").item() for w in one]
    assert [nats for nats, _ in found] == pytest.approx(wanted, rel=1e-5)
    assert found[-1][1] == 6


def test_a_capacity_factor_reaches_every_moe_layer() -> None:
    config = with_capacity(rows.read("xmoe-top4").config, 8.0)
    ffns = [cfg.layer_config(config, i)["ffn"] for i in range(4)]
    assert [f["moe"]["capacity"]["gamma"] if f["kind"] == "moe" else None for f in ffns] == [None, 8.0, None, 8.0]
    assert with_capacity(rows.read("dense").config, 8.0) == rows.read("dense").config


def test_windows_of_a_text_depend_on_seed_and_number_alone() -> None:
    ids = list(range(2, 200))
    one, two = FileStream(ids, 0, 16, seed=1), FileStream(ids, 0, 16, seed=1)
    x, y = one.batch(4)
    assert x.shape == y.shape == (4, 16) and torch.equal(x[:, 1:], y[:, :-1])
    assert (x[:, 0] == 0).all()
    again = torch.cat([two.batch(1)[0] for _ in range(4)])
    assert torch.equal(x, again)
    workers = [FileStream(ids, 0, 16, 1, first, 2).batch(2)[0] for first in range(2)]
    assert torch.equal(torch.stack(workers, 1).flatten(0, 1), x)
    with pytest.raises(ValueError, match="expected 16 tokens or more, found 5"):
        FileStream(ids[:5], 0, 16, seed=1)


@pytest.mark.parametrize("name", [*rows.names(), "mh-moe-3@48"])
def test_the_parity_helper_counts_the_model(name: str) -> None:
    row = rows.read(name)
    found = Model(row.config, row.biases).state_dict()
    given = {n: v for n, v in export.products(found).items() if not n.endswith(".table")}
    assert parity.cost(row).params == sum(v.numel() for v in given.values())


def test_checkpoints_are_kept_evenly_over_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, config = tmp_path / "text", tmp_path / "config.json"
    text.write_text(texts.corpus(texts.TRAIN_SEED, 60_000))
    config.write_text(json.dumps(rows.read("smoe@48").config | {"n_layers": 2}))
    given = {"config": config, "text": text, "out": tmp_path, "tokens": 12 * 128, "batch": 1, "threads": 1,
             "keep-checkpoints": 4}
    monkeypatch.setattr(sys, "argv", ["train.py", *(f"--{k}={v}" for k, v in given.items())])
    train.main()
    assert sorted(int(path.name) for path in (tmp_path / "steps").iterdir()) == [3, 6, 9, 12]
    first, last, end = (export.read(tmp_path / p).state_dict() for p in ("steps/3", "steps/12", "export"))
    assert all(torch.equal(last[k], end[k]) for k in end)
    assert any(not torch.equal(first[k], end[k]) for k in end)


def test_the_runtime_has_to_agree() -> None:
    assert perplexity_difference("row", 10.0, 10.004) == pytest.approx(4e-4)
    assert perplexity_difference("row", 10.0, 10.009, "a8") == pytest.approx(9e-4)
    for kind, found in (("f32", 10.006), ("a8", 10.02), ("f32", float("nan"))):
        with pytest.raises(Disagreement, match="expected at most"):
            perplexity_difference("row", 10.0, found, kind)
    one = np.array([[1.0, -4.0]])
    assert output_difference("row", one, one + 1e-3) == pytest.approx(2.5e-4)
    for found in (one + 0.01, one[0], one * np.nan):
        with pytest.raises(Disagreement):
            output_difference("row", one, found)


@pytest.fixture
def moe() -> str:
    try:
        return runtime.find_moe()
    except FileNotFoundError:
        pytest.skip("moe is not built")


def test_a_row_is_trained_once(tmp_path: Path, moe: str) -> None:
    plan = tables.SMOKE
    runner.prepare(tmp_path, plan)
    first = runner.run("xmoe-eighth@48", 1, plan, tmp_path, moe)
    assert 0 < first["experts"][0] < 64
    assert first["difference"] < 1e-5  # tokens outside of the windows do not count in a capacity
    assert first["shared_capacity"] != first["pytorch"]
    assert len(first["curve"]) == len(first["experts_curve"]) == 2 and 0 < first["experts_curve"][0] < 64
    assert [entry["gamma"] for entry in first["gammas"]] == list(language.GAMMAS)
    own = first["gammas"][language.GAMMAS.index(8.0)]
    assert own["batch"] == pytest.approx(first["shared_capacity"]) and own["window"] == pytest.approx(first["pytorch"])
    assert [layer["layer"] for layer in first["routing"]] == [0, 1, 2, 3]
    assert [len(layer.get("load", [])) for layer in first["routing"]] == [0, 64, 0, 64]
    assert all(0 < layer["positive"] < 1 for layer in first["routing"]) and first["routing"][1]["collapse"] > 0
    assert first["pytorch"] == pytest.approx(np.exp(np.mean(first["windows"])), rel=0.01)  # the last window is shorter
    assert runner.run("xmoe-eighth@48", 1, plan, tmp_path, "nothing") == first
    assert runner.finished(tmp_path, "xmoe-eighth@48", 1, tables.QUICK) is None
    assert results.gathered(tmp_path, plan) == [first]


def test_finished_runs_are_written_and_printed(tmp_path: Path, moe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--quick writes its own files beside its runs, and --print prints them again without training."""
    monkeypatch.setattr(tables, "QUICK", tables.SMOKE)
    given = ["tables.py", "--quick", "--rows", "smoe@48", "--out", str(tmp_path), "--jobs", "1", "--moe", moe]
    monkeypatch.setattr(sys, "argv", given)
    assert tables.main() == 0
    lines = (tmp_path / "quick/results.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [1, 2, 3, 4]
    document = (tmp_path / "quick/RESULTS.md").read_text()
    assert "1 of " in document and "| SMoE, top-1, d 48 |" in document
    for path in (tmp_path / "quick").glob("smoe*.json"):
        path.unlink()  # the file of results is enough
    tables.finish(tmp_path / "quick", tables.SMOKE, tmp_path / "quick/results.jsonl", tmp_path / "quick/RESULTS.md", "")
    assert (tmp_path / "quick/RESULTS.md").read_text() == document


def test_a_row_translates(tmp_path: Path, moe: str) -> None:
    runner.prepare(tmp_path, tables.SMOKE)
    found = runner.run("translate-x-moe", 1, tables.SMOKE, tmp_path, moe)
    assert found["difference"] < 1e-6 and found["outputs"] < 1e-4
    assert found["experts"] == [1.0] * 3


def test_an_encoder_is_fine_tuned_and_run(tmp_path: Path, moe: str) -> None:
    runner.prepare(tmp_path, tables.SMOKE)
    found = runner.run("encoder-x-moe", 1, tables.SMOKE, tmp_path, moe)
    assert found["difference"] < 1e-6 and found["outputs"] < 1e-4
    assert set(found["tasks"]) == set(encoders.TASKS) and found["experts"] == [1.0]
    first, *others = (export.read(tmp_path / "encoder-x-moe.1" / name) for name in (".", *encoders.TASKS))
    for other in others:  # frozen routers and experts are unchanged, everything else is fine-tuned
        routing, wanted = other.layers[2].moe.state_dict(), first.layers[2].moe.state_dict()
        assert any(k.startswith("experts.") for k in wanted) and any(k.startswith("router.") for k in wanted)
        assert all(torch.equal(routing[k], wanted[k]) for k in wanted)
        assert not torch.equal(other.embedding.weight, first.embedding.weight)


def test_what_an_encoder_is_measured_by_it_has_not_learnt(tmp_path: Path) -> None:
    encoders.prepare(tmp_path, tables.SMOKE)
    data = torch.load(tmp_path / "data.pt", weights_only=True)
    for name in encoders.TASKS:
        learnt, asked = ({text for text, _, _ in data[part][name]} for part in ("learn", "test"))
        assert len(learnt) == 150 and len(asked) == 20 and not learnt & asked, name
    ids = data["ids"].tolist()
    starts: dict[tuple[int, ...], list[int]] = {}
    for i in range(len(ids)):
        starts.setdefault(tuple(ids[i : i + 4]), []).append(i)
    assert len(data["held_out"]) > 5
    for seen, targets in data["held_out"]:
        window = [s if t < 0 else t for s, t in zip(seen, targets, strict=True)][1:-1]
        assert all(ids[i : i + len(window)] != window for i in starts.get(tuple(window[:4]), []))


def test_only_the_same_encoder_is_fine_tuned() -> None:
    row = rows.read("encoder-smoe")
    model = Model(row.config, row.biases)
    del model.layers[0].attention.q
    with pytest.raises(ValueError, match="other or missing: layers.0.attention.q.weight"):
        encoders.tuned(model, encoders.TASKS["tags"].head, row.biases)


def test_fine_tuning_begins_where_training_ended() -> None:
    row = rows.read("encoder-smoe")
    torch.manual_seed(1)
    model = Model(row.config, row.biases)
    for task in encoders.TASKS.values():
        new = encoders.tuned(model, task.head, row.biases)
        same = {n for n, v in new.state_dict().items() if n in model.state_dict() and torch.equal(v, model.state_dict()[n])}
        assert {n for n in new.state_dict() if n not in same} <= {f"head.{n}" for n in ("weight", "bias", "dense.weight")}
        before = new.layers[0].attention.o.weight.detach().clone()
        Steps(new, row.tuning(2), fresh=False)
        assert torch.equal(new.layers[0].attention.o.weight, before)


@pytest.mark.parametrize("task", encoders.TASKS)
def test_an_encoder_sees_all_that_is_there(task: str) -> None:
    row = rows.read("encoder-smoe")
    torch.manual_seed(1)
    model = encoders.tuned(Model(row.config, row.biases), encoders.TASKS[task].head, row.biases).eval()
    z = model(torch.tensor([[0, 40, 41, 42, 1]]))
    later = model(torch.tensor([[0, 40, 41, 43, 1]]))
    assert not torch.allclose(z[0, 0], later[0, 0])
    padded = model(torch.tensor([[0, 40, 41, 42, 1, 2, 2], [0, 50, 51, 52, 53, 54, 1]]))[0]
    if task == "spans":
        assert padded[5:].isinf().all()
    assert torch.allclose(padded if task == "classes" else padded[:5], z[0], atol=1e-5)


def test_masks() -> None:
    config = {"bos_token_id": 0, "eos_token_ids": [1], "mask_token_id": 3, "vocab_size": 768}
    window = [100 + i % 50 for i in range(4000)]
    seen, asked = encoders.mask(window, config, Rng(1))
    assert (seen[0], asked[0], seen[-1], asked[-1]) == (0, -100, 1, -100)
    found = [(s, w) for s, a, w in zip(seen[1:-1], asked[1:-1], window, strict=True) if a != -100]
    assert all(a in (w, -100) for a, w in zip(asked[1:-1], window, strict=True))
    assert 0.13 < len(found) / 4000 < 0.17
    masks, kept = sum(s == 3 for s, _ in found), sum(s == w for s, w in found)
    assert 0.7 < masks / len(found) < 0.9 and 0.04 < kept / len(found) < 0.17
    assert all(s == w for s, a, w in zip(seen[1:-1], asked[1:-1], window, strict=True) if a == -100)
    few = config | {"vocab_size": 6}
    assert {t for i in range(20) for t in encoders.mask([4] * 100, few, Rng(i))[0]} == {0, 1, 3, 4, 5}


def test_a_span_does_not_end_in_front_of_its_start() -> None:
    z = torch.tensor([[0.0, 9.0], [5.0, 0.0], [4.0, 1.0], [0.0, 0.5]])
    assert encoders.best_span(z) == [0, 0]
    z[0, 1] = 0.0
    assert encoders.best_span(z) == [1, 2]
    y = torch.tensor([[1, 2]])
    logits = z[None].clone().requires_grad_()
    encoders.span_loss(logits, y).backward()
    assert logits.grad[0, 1, 0] < 0 and logits.grad[0, 2, 1] < 0


def test_targets_are_those_of_tokens() -> None:
    tokens = [(0, 0), (0, 3), (3, 5), (5, 6), (6, 9), (9, 10), (0, 0)]
    found = [((0, 5), 0), ((6, 9), 2)]
    assert encoders._tag_target(found, tokens) == [-100, 0, 0, -100, 2, -100, -100]
    assert encoders._span_target((0, 5), tokens) == [1, 2]
    z = torch.eye(4)[[0, 0, 1, 0, 2, 0, 0]]
    assert encoders._right_tags(z, encoders._tag_target(found, tokens)) == [True, False, True]


@pytest.mark.parametrize("name", ["encoder-dense", "translate-dense"])
def test_what_goes_on_with_a_text_needs_a_decoder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows.read(name)
    export.write(Model(row.config, row.biases), tmp_path)
    train_tokenizer(["a text"], 300).save(str(tmp_path / "tokenizer.json"))
    for program, given in ((train, ["--config", "config.json", "--out", "out"]), (evaluate, ["."]), (sample, ["."])):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [program.__name__, *given])
        with pytest.raises(SystemExit, match="config: expected a decoder, found an encoder"):
            program.main()


def test_the_head_of_a_ternary_encoder_is_its_embedding(tmp_path: Path) -> None:
    config = rows.read("encoder-smoe").config | {"precision": [{"match": "*", "weights": "ternary2", "activations": "a8"}]}
    model = Model(config, ("head",)).eval()
    export.write(model, tmp_path)
    read, ids = export.read(tmp_path), torch.tensor([[0, 40, 41, 1]])
    assert torch.equal(read(ids), model(ids))


def translator(name: str) -> Model:
    torch.manual_seed(1)
    model = Model(rows.read(name).config).eval()
    calm_outputs(model)
    return model


@pytest.mark.parametrize("name", ["translate-dense", "translate-switch", "translate-x-moe"])
def test_padding_is_not_there(name: str) -> None:
    model = translator(name)
    texts_, sources = ([[1, 40, 41], [1, 50, 51, 52, 53]], [[60, 61, 62, 63, 1], [70, 1]])
    pad = torch.nn.utils.rnn.pad_sequence
    both = model(*(pad([torch.tensor(t) for t in side], True, 2) for side in (texts_, sources)))
    counts = [len(layer.route.indices) for layer in model.moe_layers()]
    assert counts == ([] if name == "translate-dense" else [5 + 2, 5 + 2, 3 + 5])
    loss, scores = model.balance_loss(), []
    for i in range(2):
        alone = model(torch.tensor([texts_[i]]), torch.tensor([sources[i]]))[0]
        assert torch.allclose(both[i, : len(texts_[i])], alone, atol=1e-5)
        scores.append([layer.route.scores for layer in model.moe_layers()])
    for layer, *of_pairs in zip(model.moe_layers(), *scores, strict=True):
        layer.route.scores = torch.cat(of_pairs)  # those of both pairs without padding
    assert torch.allclose(loss, model.balance_loss(), atol=1e-5)


def test_a_decoder_takes_padding_like_any_other_token() -> None:
    model, ids = small({"kind": "softmax", "k": 2}).eval(), text()
    plain = model(ids)
    model.config["pad_token_id"] = int(ids[1, 4])
    assert torch.equal(model(ids), plain)
    assert [len(layer.route.indices) for layer in model.moe_layers()] == [ids.numel()] * 2


def test_what_an_encoder_decoder_sees() -> None:
    model = translator("translate-switch")
    text_, source = torch.tensor([[1, 40, 41, 42]]), torch.tensor([[60, 61, 62, 1]])
    z = model(text_, source)
    later = model(torch.tensor([[1, 40, 41, 43]]), source)
    assert torch.allclose(z[:, :3], later[:, :3], atol=1e-5) and not torch.allclose(z[:, 3], later[:, 3])
    other = model(text_, torch.tensor([[60, 61, 63, 1]]))
    assert not torch.allclose(z[:, 0], other[:, 0])
    states = model.read(source)[0], model.read(torch.tensor([[60, 61, 63, 1]]))[0]
    assert not torch.allclose(states[0][:, 0], states[1][:, 0])  # the encoder attends to the whole source


def test_an_encoder_decoder_is_exported(tmp_path: Path) -> None:
    model = translator("translate-xmoe")
    export.write(model, tmp_path)
    read = export.read(tmp_path)
    inputs = torch.tensor([[1, 40, 41]]), torch.tensor([[60, 61, 1]])
    assert torch.equal(read(*inputs), model(*inputs))


def test_pairs_are_batches() -> None:
    config = {"start_token_id": 1, "pad_token_id": 2}
    pairs = [([7, 8, 9, 1], [5, 1]), ([7, 1], [5, 6, 1])]
    (read, source), wanted = translation.Pairs(pairs, config, 4).batch(8)
    assert read.shape == wanted.shape == (8, 3) and source.shape == (8, 4)
    found = {(tuple(r), tuple(s), tuple(w)) for r, s, w in zip(read.tolist(), source.tolist(), wanted.tolist(), strict=True)}
    assert found == {((1, 5, 2), (7, 8, 9, 1), (5, 1, -100)), ((1, 5, 6), (7, 1, 2, 2), (5, 6, 1))}


def test_a_greedy_translation_has_to_be_the_best() -> None:
    model, source = translator("translate-dense"), [60, 61, 1]
    best: list[int] = []
    for _ in range(4):
        z = model(torch.tensor([[1, *best]]), torch.tensor([source]))[0, -1]
        z[[1, 2]] = -float("inf")
        best.append(int(z.argmax()))
    translation.check_greedy("row", model, [(source, best)])
    with pytest.raises(Disagreement, match="token 2 of a greedy translation"):
        translation.check_greedy("row", model, [(source, [*best[:2], (best[2] + 1) % 768])])


def test_right_translations() -> None:
    assert translation.right(["a b c.", "a c", ""], ["a b c.", "a b c d", "a"]) == (1 / 3, [1.0, 0.25, 0.0])


def test_every_row_is_a_job_and_those_of_the_first_table_come_first() -> None:
    jobs = claims.planned()
    assert len(jobs) == len(set(jobs))
    first = claims.TABLES[0]
    assert jobs[: 3 * len(first.rows)] == [(name, seed) for seed in (1, 2, 3) for name in first.rows]
    assert {name for name, seed in jobs if seed == 4} == {name for name, _ in jobs if "@" in name}
    # Every claim has two seeds before any row of the full width has a third, apart from the first tables.
    place = {job: i for i, job in enumerate(jobs)}
    named = {name for table in claims.TABLES for claim in table.claims for name in (claim.better, claim.worse)}
    early = {name for table in claims.TABLES[:3] for name in table.rows}
    assert max(place[name, 2] for name in named) < min(place[job] for job in jobs if job[1] == 3 and job[0] not in early)
    assert {name for name, seed in jobs if seed == 2} == named
    assert place["mh-moe-3-raw@48", 3] < place["mh-moe-2-raw", 1] < place["dense", 1]


def test_patterns_choose_rows() -> None:
    assert tables.chosen(["*"]) == {name for name, _ in claims.planned()}
    assert tables.chosen(["translate-x*", "dense"]) == {"translate-x-moe", "translate-xmoe", "dense"}
    with pytest.raises(rows.BadRow, match="no row sparse; expected some of base, dense"):
        tables.chosen(["dense", "sparse"])


def test_rows_of_another_text_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in runner.TASKS.values():
        monkeypatch.setattr(task, "prepare", lambda folder, plan: None)
    runner.prepare(tmp_path, tables.SMOKE)
    found = {"row": "dense", "key": results.key(rows.read("dense"), tables.SMOKE)}
    (tmp_path / "dense.1.json").write_text(json.dumps(found))
    runner.prepare(tmp_path, tables.SMOKE)
    assert runner.finished(tmp_path, "dense", 1, tables.SMOKE) == found
    assert results.gathered(tmp_path, tables.SMOKE) == [found]
    monkeypatch.setattr(texts, "fingerprint", lambda: "another")
    assert runner.finished(tmp_path, "dense", 1, tables.SMOKE) is None
    assert results.gathered(tmp_path, tables.SMOKE) == []
    with pytest.raises(RuntimeError, match="rows that were trained on another text"):
        runner.prepare(tmp_path, tables.SMOKE)


def test_no_row_begins_once_the_time_is_up_and_faults_are_told(tmp_path: Path) -> None:
    assert tables.work([("dense", 1)], tables.SMOKE, tmp_path, "moe", 1, hours=0) == []
    found = tables.work([("nowhere", 1)], tables.SMOKE, tmp_path, "moe", 1, hours=1)
    assert len(found) == 1 and found[0].startswith("nowhere, seed 1: no row nowhere")


@pytest.mark.parametrize("router, words", [
    ({"kind": "cosine", "k": 1}, "router.tau: expected a number above 0, found nothing; a cosine router has no default for it"),
    ({"kind": "cosine", "tau": 0.3, "gate": "relu"}, "router.gate: expected one of softmax, sigmoid, found 'relu'"),
    ({"kind": "threshold", "t": 1.5}, "router.t: expected a number of 0 or more, at most 1, found 1.5"),
    ({"kind": "softmax"}, "router.k: expected an integer of 1 or more, found nothing"),
])
def test_a_configuration_is_checked_before_anything_slow(
    router: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    config = small({"kind": "softmax", "k": 2}).config
    config["layer_defaults"]["ffn"]["moe"]["router"] = router
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(train, "train_tokenizer", None)  # it takes minutes
    monkeypatch.setattr(sys, "argv", ["train.py", f"--config={tmp_path / 'config.json'}", f"--out={tmp_path}"])
    with pytest.raises(SystemExit):
        train.main()
    assert f"layer 0: ffn.moe.{words}" in capsys.readouterr().err


@pytest.mark.parametrize("change, words", [
    ({"head": None}, "config.head: expected an object, found None"),
    ({"head": {"kind": "classes"}}, "config.head.n_labels: expected 1 or more for classes, found nothing"),
    ({"layers": [{"index": 99}]}, r"config.layers\[0\].index: expected at most n_layers - 1, 1, found 99"),
    ({"embedding_multiplier": 10**400}, "config.embedding_multiplier: expected a number"),
    ({"n_encoder_layers": 5}, "config.n_encoder_layers: expected at most n_layers, 2, found 5"),
    ({"bos_token_id": 99}, "config.bos_token_id: expected at most vocab_size - 1, 59, found 99"),
    ({"add_bos": True, "bos_token_id": None}, "config.bos_token_id: expected an id, as add_bos is true"),
    ({"precision": [{"match": "*", "weights": "ternary9"}]}, "weights: expected one of auto, f32"),
    ({"attention": {"n_heads": 2, "rope": {"dims": 3}}}, "rope.dims: expected an even number, found 3"),
    ({"attention": {"n_heads": 2, "rope": {"scaling": {"kind": "yarn", "factor": 2.0}}}},
     "rope.scaling.original_context: expected a value, found nothing"),
    ({"router": {"kind": "threshold", "t": 0.9, "min_k": 9}}, "router.min_k: expected at most max_k or n_experts, 4, found 9"),
    ({"router": {"kind": "cosine", "tau": 0.3, "identity": True, "d_e": 4}}, "router.d_e: expected none beside identity"),
])
def test_keys_that_do_not_fit_together(change: dict[str, Any], words: str) -> None:
    config: dict[str, Any] = {
        "model_type": "moe_research", "layout_version": 1, "vocab_size": 60, "d_model": 16, "n_layers": 2, "context_length": 32,
        "layer_defaults": {"attention": change.pop("attention", {"n_heads": 2}),
                           "ffn": {"kind": "moe", "d_ff": 8, "act": "silu", "moe": {
                               "n_experts": 4, "router": change.pop("router", {"kind": "softmax", "k": 1})}}}} | change
    with pytest.raises(check_config.BadConfig, match=words):
        cfg.complete(config)


def test_the_defaults_are_those_of_the_runtime(tmp_path: Path, moe: str) -> None:
    """A configuration of required keys alone gives the same results in both."""
    config = {"model_type": "moe_research", "layout_version": 1, "norm": {"kind": "rms"}, "positions": "rope", "vocab_size": 60,
              "d_model": 16, "n_layers": 2, "context_length": 32, "precision": [{"match": "*", "weights": "f32"}],
              "layers": [{"index": 0, "attention": {"n_heads": 2}, "ffn": {"kind": "dense", "d_ff": 8, "act": "gelu"}},
                         {"index": 1, "attention": {"n_heads": 4}, "ffn": {"kind": "moe", "d_ff": 8, "act": "silu", "moe": {
                             "n_experts": 4, "router": {"kind": "cosine", "tau": 0.3}}}}]}
    torch.manual_seed(1)
    model = Model(config).eval()
    export.write(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["layers"] == config["layers"]
    runtime.ask(moe, "convert", tmp_path, tmp_path / "model.moe")
    ids = text(1, 12)[0].tolist()
    found, _ = runtime.outputs(moe, tmp_path / "model.moe", [ids])
    with torch.no_grad():
        wanted = model(torch.tensor([ids]))[0].numpy()
    assert output_difference("defaults", wanted, found[0]) < 1e-3  # keys and values are rounded in the runtime's cache


@pytest.mark.parametrize("change, words", [
    ({"fn": "gate_backward", "par": {"tau": 0.3, "colour": 1}}, "unexpected keyword argument 'colour'"),
    ({"fn": "threshold_balance_loss", "par": {"t": 1.5}, "error": None}, "expected 0..1, found 1.5"),
    ({"fn": "nothing", "par": {}}, "unknown function nothing"),
])
def test_a_case_that_cannot_be_run_is_a_failure(change: dict[str, Any], words: str) -> None:
    scores = {"shape": [1, 2], "type": "float", "data": [0.0, 1.0]}
    given = {"gate_backward": ("scores", "grad_weights"), "threshold_balance_loss": ("logits",)}.get(change["fn"], ())
    case = {"id": "x", "in": {name: scores for name in given}, "out": {}} | change
    if case.pop("error", 0) is None:
        case = {k: v for k, v in case.items() if k != "error"}
    assert words in check_losses.fault(case, {"rtol": 1e-6, "atol": 1e-9})


@pytest.mark.parametrize("gating, k, normalise", [("softmax", 2, False), ("softmax", 2, True), ("sigmoid", 2, True), ("sigmoid", 3, False)])
def test_gates_with_and_without_normalising(gating: str, k: int, normalise: bool) -> None:
    """Against numbers by hand: weights, and gradients by differences."""
    scores, tau = torch.tensor([[0.3, -0.2, 0.5, 0.1]], dtype=torch.float64), 0.4
    weigh = torch.arange(1.0, k + 1, dtype=torch.float64)[None]

    def weights(s: torch.Tensor, tau_: float) -> torch.Tensor:
        p = (s / tau_).softmax(-1) if gating == "softmax" else (s / tau_).sigmoid()
        chosen = p.gather(1, scores.argsort(descending=True)[:, :k])
        return chosen / chosen.sum(-1, keepdim=True) if normalise else chosen

    found = check_losses.gate(scores.clone(), weigh, tau, k, gating, normalize_topk=normalise)
    assert torch.allclose(found["weights"], weights(scores, tau))
    step = 1e-6
    for i in range(4):
        moved = torch.eye(4, dtype=torch.float64)[i] * step
        slope = ((weights(scores + moved, tau) - weights(scores - moved, tau)) * weigh).sum() / (2 * step)
        assert found["grad_scores"][0, i].item() == pytest.approx(slope.item(), abs=1e-8)
    slope = ((weights(scores, tau + step) - weights(scores, tau - step)) * weigh).sum() / (2 * step)
    assert found["grad_tau"].item() == pytest.approx(slope.item(), abs=1e-8)


def test_golden_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["check_losses.py", str(CASES)])
    assert check_losses.main() == 0


def _gradients(f: Any, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """f's value, and the gradients of a weighted sum of it."""
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    y = f(*leaves)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), [x for x in leaves if x.requires_grad])]


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


def _turned(kind: str) -> Any:
    """Complex multiplication of the rotated pairs."""

    def f(x: torch.Tensor) -> torch.Tensor:
        angle, dims = torch.arange(5 * 3, dtype=x.dtype).view(5, 3), 6
        ends = (x[..., :3], x[..., 3:dims]) if kind == "half" else (x[..., 0:dims:2], x[..., 1:dims:2])
        z = torch.complex(*(e.contiguous() for e in ends)) * torch.polar(torch.ones_like(angle), angle)
        both = torch.cat((z.real, z.imag), -1) if kind == "half" else torch.view_as_real(z).flatten(-2)
        return torch.cat((both, x[..., dims:]), -1)

    return f


ANGLE = torch.arange(5 * 3, dtype=torch.float64).view(5, 3)
TARGETS = torch.tensor([2, -100, 0, 6])
COUNTS = [2, 0, 3, 1]
EXPERT = torch.tensor([0, 0, 2, 2, 2, 3])
WRITTEN_OUT: dict[str, tuple[Any, Any, tuple[torch.Tensor, ...]]] = {
    "norm": (lambda x, w: fused.RmsNorm.apply(x, w, 1e-5), lambda x, w: F.rms_norm(x, (8,), w, 1e-5), (_drawn(2, 3, 8), _drawn(8))),
    "norm without weight": (lambda x: fused.RmsNorm.apply(x, None, 1e-5), lambda x: F.rms_norm(x, (8,), None, 1e-5), (_drawn(3, 8),)),
    "gated silu": (fused.GatedSilu.apply, lambda a, b: a * torch.sigmoid(a) * b, (_drawn(3, 4), _drawn(3, 4) + 1)),
    "loss": (lambda z: fused.CrossEntropy.apply(z, TARGETS), lambda z: F.cross_entropy(z, TARGETS), (_drawn(4, 7) * 9,)),
    "rotated halves": (lambda x: fused.Rotation.apply(x, ANGLE.cos(), ANGLE.sin(), "half"), _turned("half"), (_drawn(2, 5, 8),)),
    "rotated pairs": (lambda x: fused.Rotation.apply(x, ANGLE.cos(), ANGLE.sin(), "interleaved"), _turned("interleaved"), (_drawn(2, 5, 6),)),
    "experts": (lambda x, w: fused.GroupedProduct.apply(x, w, COUNTS), lambda x, w: torch.einsum("pi,poi->po", x, w[EXPERT]),
                (_drawn(6, 5), _drawn(4, 3, 5))),
    "norms of experts": (lambda x, w: fused.GroupedScale.apply(x, w, COUNTS), lambda x, w: x * w[EXPERT], (_drawn(6, 5), _drawn(4, 5))),
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_gradients_that_are_written_out_are_those_of_autograd(name: str) -> None:
    ours, plain, inputs = WRITTEN_OUT[name]
    for found, wanted in zip(_gradients(ours, *inputs), _gradients(plain, *inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name, of_weights", [("experts", "mm"), ("norms of experts", "sum")])
def test_frozen_experts_pass_on_the_same_for_less(monkeypatch: pytest.MonkeyPatch, name: str, of_weights: str) -> None:
    ours, _, (x, w) = WRITTEN_OUT[name]
    calls, function = [], getattr(torch, of_weights)
    monkeypatch.setattr(torch, of_weights, lambda *args, **options: calls.append(args) or function(*args, **options))
    learnt = _gradients(ours, x, w)
    n_learnt = len(calls)
    frozen = _gradients(lambda a: ours(a, w), x)
    assert len(calls) - n_learnt == n_learnt - len(COUNTS)
    assert len(frozen) == 2 and all(torch.equal(a, b) for a, b in zip(frozen, learnt[:2], strict=True))


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this PyTorch has no function for it")
def test_experts_in_one_call_are_those_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = _drawn(6, 8).float(), _drawn(4, 12, 8).float()
    assert fused._in_one_call(x, w) and not fused._in_one_call(x[:, :6], w[..., :6])
    product = lambda a, b: fused.GroupedProduct.apply(a, b, COUNTS)
    together = _gradients(product, x, w)
    monkeypatch.delattr(F, "grouped_mm")
    for a, b in zip(together, _gradients(product, x, w), strict=True):
        torch.testing.assert_close(a, b)


def test_dropout_keeps_the_mean_and_scales_the_gradient() -> None:
    torch.manual_seed(1)
    x = torch.ones(3, 333, 1001, requires_grad=True)
    y = fused.dropout(x, 0.1)
    y.sum().backward()
    assert set(y.unique().tolist()) == {0.0, np.float32(1 / 0.9)}
    assert (y == 0).double().mean().item() == pytest.approx(0.1, abs=0.001)
    assert torch.equal(x.grad, y.detach())
    assert fused.dropout(x, 0.0) is x


def test_scores_are_ordered_like_a_stable_sort() -> None:
    z = torch.randn(50, 64, generator=torch.Generator().manual_seed(1)).mul_(4).round_()  # ties, and both zeros
    z[0, :3] = torch.tensor([torch.inf, -torch.inf, -0.0])
    for scores in (z, z.flatten(), z.double()):
        assert torch.equal(order_desc(scores), torch.sort(scores, dim=-1, descending=True, stable=True).indices)
    for n in (256, 257):
        experts = torch.randint(n, (999,), generator=torch.Generator().manual_seed(1))
        assert torch.equal(stable_order(experts, n), torch.argsort(experts, stable=True))


@pytest.mark.parametrize("clip", [1e-3, 1.0, 1e3])
def test_gradients_are_clipped_as_torch_does(clip: float) -> None:
    model, other = (small({"kind": "softmax", "k": 2}) for _ in range(2))
    own = Steps(model, settings(clip=clip))
    for m in (model, other):
        m.load_state_dict(model.state_dict())
        m(text()).square().mean().mul(1e2).backward()
    torch.nn.utils.clip_grad_norm_(other.parameters(), clip)
    own._clip()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
