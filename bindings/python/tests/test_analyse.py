# SPDX-License-Identifier: MIT
"""The measures of moe.analyse against direct implementations of their definitions."""

import html.parser
import itertools
import json
import math

import moe
import numpy as np
import pytest
from conftest import ROOT, STORIES
from moe import analyse
from moe.__main__ import main
from moe.analyse import charts, runs

TEXT = (ROOT / "examples/models/stories.heldout.txt").read_text()[:6000]
RNG = np.random.default_rng(5)


def covariances(hidden, experts):
    """S_W and S_B, summed token by token and expert by expert."""
    d, mean = hidden.shape[1], hidden.mean(axis=0)
    within, between, groups = np.zeros((d, d)), np.zeros((d, d)), sorted(set(experts))
    for e in groups:
        own = hidden[experts == e]
        centre = own.mean(axis=0)
        between += np.outer(centre - mean, centre - mean) / len(groups)
        for h in own:
            within += np.outer(h - centre, h - centre) / len(hidden)
    return within, between


@pytest.mark.parametrize("n, d, n_experts", [(60, 4, 3), (200, 8, 12), (50, 12, 4)])
def test_representation_collapse(n, d, n_experts):
    experts = RNG.integers(0, n_experts, n) * 2  # every other expert has no tokens
    hidden = RNG.standard_normal((n, d)) + 30 + RNG.standard_normal((2 * n_experts, d))[experts]
    within, between = covariances(hidden, experts)
    expected = np.trace(within @ np.linalg.pinv(between, rcond=1e-10))
    assert analyse.representation_collapse(hidden, experts) == pytest.approx(expected, rel=1e-6)
    pieces = analyse.Collapse(2 * n_experts, d)
    for part in np.array_split(np.arange(n), 7):
        pieces.add(hidden[part].astype(np.float32), experts[part])
    assert pieces.value() == pytest.approx(expected, rel=1e-3)


def test_collapsed_states_have_none_left():
    experts = np.arange(40) % 4
    centres = RNG.standard_normal((4, 6))
    assert analyse.representation_collapse(centres[experts], experts) == pytest.approx(0, abs=1e-9)
    assert math.isnan(analyse.representation_collapse(centres[experts], np.zeros(40, int)))
    assert analyse.Collapse(4, 6).value() != analyse.Collapse(4, 6).value()


def test_fluctuation():
    before, after = RNG.integers(0, 5, 300), RNG.integers(0, 5, 300)
    moved = sum(1 for a, b in zip(before, after) if a != b)
    assert analyse.fluctuation(before, after) == pytest.approx(moved / 300)
    assert analyse.fluctuation(before, before) == 0


def test_consistency():
    first = RNG.integers(0, 4, 60)
    second = np.where(RNG.random(60) < 0.6, (first + 1) % 4, RNG.integers(0, 4, 60))
    pairs = [(a == b, c == d) for (a, c), (b, d) in itertools.combinations(zip(first, second), 2)]
    expected = np.corrcoef(np.array(pairs, float).T)[0, 1]
    assert analyse.consistency(first, second) == pytest.approx(expected)
    assert analyse.consistency(first, 9 - first) == pytest.approx(1)
    assert math.isnan(analyse.consistency(first, np.zeros(60, int)))


def test_consistency_of_loads():
    first, second = np.array([10, 40, 20, 30]), np.array([5, 5, 90, 20])
    expected = np.corrcoef([10, 20, 30, 40], [5, 5, 20, 90])[0, 1]
    assert analyse.load_consistency(first, second) == pytest.approx(expected)
    assert analyse.load_consistency(first, first[::-1]) == pytest.approx(1)  # the same loads, other numbers
    assert math.isnan(analyse.load_consistency(first, np.full(4, 25)))
    with pytest.raises(moe.ShapeError, match=r"\(4,\) and \(3,\)"):
        analyse.load_consistency(first, first[:3])
    with pytest.raises(moe.ArgumentError, match="found 1"):
        analyse.load_consistency(first[:1], first[:1])


@pytest.mark.parametrize("measure", [analyse.fluctuation, analyse.consistency])
def test_both_must_have_the_same_tokens(measure):
    with pytest.raises(moe.ShapeError, match=r"\(3,\) and \(4,\)"):
        measure(np.zeros(3, int), np.zeros(4, int))
    with pytest.raises(moe.ArgumentError, match="found 1"):
        measure(np.zeros(1, int), np.zeros(1, int))


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_needed(threshold):
    p = analyse.probabilities(RNG.standard_normal((50, 9)) * 2)

    def count(row):
        total, n = 0.0, 0
        for v in sorted(row, reverse=True):
            if n > 0 and total >= threshold:
                break
            total, n = total + v, n + 1
        return n

    assert p.sum(axis=-1) == pytest.approx(1)
    expected = [9 if threshold == 1 else count(row) for row in p]
    np.testing.assert_array_equal(analyse.needed(p, threshold), expected)
    with pytest.raises(moe.ArgumentError, match="found 1.5"):
        analyse.needed(p, 1.5)


@pytest.fixture
def cosine(tmp_path):
    moe.convert(ROOT / "tests/data/pytorch/cosine_softmax_top2", tmp_path / "cosine.moe")
    with moe.Model(tmp_path / "cosine.moe") as model:
        yield model


@pytest.mark.parametrize("name", ["model", "cosine"])
def test_needed_is_what_the_runtime_takes(name, request):
    """Compares the first MoE layer, whose input is the same under every router."""
    model = request.getfixturevalue(name)
    ids = analyse.tokens_of(model, TEXT, 600) if name == "model" else list(range(2, 36))
    recorded = analyse.record(model, ids, [0.4, 0.9])
    for t in (0.4, 0.9):
        with model.session() as session:
            session.set_router(f"threshold:{t}")
            session.count_routing()
            session.perplexity(ids)
            taken = session.routing(recorded.layers[0].layer).experts_per_token
        found = recorded.layers[0].needed[t]
        assert found.sum() == taken.sum()
        assert np.abs(found - taken.astype(np.int64)).sum() <= 2  # float and double sums may differ at the threshold


def test_a_recording_is_the_model_s_own_run(model):
    ids = analyse.tokens_of(model, TEXT, 700)
    found = analyse.record(model, ids)
    with model.session() as session:
        session.count_routing()
        assert found.perplexity == session.perplexity(ids).perplexity
        stats = [session.routing(i) for i in range(4)]
    for layer, s in zip(found.layers, stats):
        np.testing.assert_array_equal(layer.load, s.tokens_per_expert)
        assert layer.experts == 2 and len(layer.first) == s.n_tokens
        assert layer.positive == found.positive[layer.layer] == s.n_positive / s.n_activations
        assert layer.collapse > 0
        assert (np.bincount(layer.first, minlength=16) <= layer.load).all()


def test_sweep(model):
    ids = analyse.tokens_of(model, TEXT, 400)
    rows = analyse.sweep(model, ids, ["topk:1", "topk:4"])
    expert = 3 * 96 * 128  # gate, up and down
    for row, k in zip(rows, (1, 4)):
        assert row.experts == k and row.flops == 4 * 2 * k * 2 * expert
        assert row.seconds > 0 and row.decode_seconds > 0 and 0 < row.positive < 1
        with model.session() as session:
            session.set_router(row.router)
            assert row.perplexity == session.perplexity(ids).perplexity
    with pytest.raises(moe.ArgumentError):
        analyse.sweep(model, ids, ["topk:1", "nonsense"])


def tiny(tmp_path, seed):
    path = tmp_path / f"tiny-{seed}.moe"
    moe.save_synthetic("tiny", path, seed=seed)
    return path


def test_several_models(tmp_path):
    a, b = tiny(tmp_path, 1), tiny(tmp_path, 2)
    found = analyse.analyse([a, a, b], TEXT, others=[b, a], thresholds=[0.5], max_tokens=300)
    first = [[x.first for x in r.layers] for r in found.models]
    assert found.fluctuation == [[0.0, 0.0], [float(np.mean(x != y)) for x, y in zip(first[1], first[2])]]
    assert found.consistency[0] == [pytest.approx(1)] * 2
    assert found.load_consistency == [[analyse.load_consistency(x.load, y.load) for x, y in zip(found.models[-1].layers, other.layers)]
                                      for other in found.others]
    assert found.load_consistency[0] == [pytest.approx(1)] * 2
    assert found.consistency[1] == [analyse.consistency(x, y) for x, y in zip(first[2], first[0])]
    assert [row.router for row in found.sweep] == ["threshold:0.5"]
    shown = analyse.tables(found)
    assert all(title in shown for title in ("Routing fluctuation", "Consistency of loads between runs", "Consistency of groups between runs"))


class Elements(html.parser.HTMLParser):
    """Checks that elements are closed in the order of nesting, and records them."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def curves_of(page):
    elements = Elements()
    elements.feed(page)
    assert elements.open == []
    return [a for tag, a in elements.seen if tag == "path" and a["class"].startswith("curve")]


def test_page(model):
    found = analyse.analyse([model], TEXT, thresholds=[0.3, 0.6], topk=[1, 2], max_tokens=500)
    page = analyse.page(found)
    curves = curves_of(page)
    assert "http" not in page and "<script" not in page
    needed = [a for a in curves if a["data-values"].startswith("0.3,")]
    assert [a["data-name"] for a in needed] == [f"layer {i}" for i in range(4)]
    assert {a["data-name"] for a in curves} == {*(f"layer {i}" for i in range(4)), "threshold", "top-k",
                                                found.models[-1].name}
    by_flops = next(a for a in curves if a["data-name"] == "top-k")["data-values"].split()
    assert [float(v.split(",")[1]) for v in by_flops] == pytest.approx(
        [row.perplexity for row in found.sweep[2:]], rel=1e-5)


def test_names_are_no_markup():
    curve = charts.Curve("<b>&\x00", [(0, 1), (1, 2)])
    svg = charts.Chart("x", "y", [curve]).svg()
    assert "<b>" not in svg and "&lt;b&gt;&amp;?" in svg


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0], [0.0, 0.0], [1e-9, 5e9], [-4.0, math.nan, 7.0]])
@pytest.mark.parametrize("log", [False, True])
def test_charts_of_any_values(values, log):
    curve = charts.Curve("c", [(abs(v) + i, v) for i, v in enumerate(values)])
    chart = charts.Chart("x", "y", [curve, charts.Curve("none", [(1, math.nan)])], log_x=log)
    svg = chart.svg(alone=True)
    assert "nan" not in svg.replace("data-values", "").split('d="M')[1]
    assert svg.count('class="curve') == 1
    assert charts.Chart("x", "y", [charts.Curve("none", [])]).empty


def test_many_layers_have_room_for_names():
    curves = [charts.Curve(f"layer {i}", [(0, i), (1, i)]) for i in range(60)]
    svg = charts.Chart("x", "y", curves).svg()
    heights = [float(part.split('y="')[1].split('"')[0]) for part in svg.split('<text class="name')[1:]]
    assert 2 <= len(heights) <= 16
    assert all(b - a >= charts.NAME_HEIGHT - 0.11 for a, b in zip(sorted(heights), sorted(heights)[1:]))
    assert min(heights) >= 0 and max(heights) <= charts.TOP + charts.HEIGHT + 5


def test_command(tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text(TEXT)
    a, b = tiny(tmp_path, 1), tiny(tmp_path, 2)
    assert main(["analyse", str(a), str(b), "-f", str(text), "-o", str(tmp_path / "page.html"), "--charts",
                 str(tmp_path / "charts"), "--thresholds", "0.5:1:0.5", "--topk", "1", "--tokens", "200",
                 "--other-run", str(a)]) == 0
    out = capsys.readouterr().out
    assert "threshold:0.5" in out and "topk:1" in out and "Representation collapse" in out
    curves_of((tmp_path / "page.html").read_text())
    names = {path.name for path in (tmp_path / "charts").iterdir()}
    assert names == {f"{n}.svg" for n in ("needed", "spread", "perplexity", "batch-time", "time", "positive", "activations",
                                          "load", "collapse", "fluctuation", "consistency", "load-consistency")}
    assert main(["analyse", str(a), "-f", str(text), "--tokens", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["models"]) == 1 and len(found["sweep"]) == 10 and found["fluctuation"] == []


def test_a_router_without_softmax(tmp_path):
    moe.convert(ROOT / "tests/data/pytorch/sigmoid_raw", tmp_path / "sigmoid.moe")
    with moe.Model(tmp_path / "sigmoid.moe") as model:
        found = analyse.Analysis([analyse.record(model, list(range(2, 36)), [0.5])], [], [], [], [])
        assert found.models[0].layers[0].needed == {}
        assert "takes no softmax" in analyse.tables(found)
        curves_of(analyse.page(found))
        with pytest.raises(moe.UnsupportedError):
            analyse.sweep(model, [2, 3, 4], ["topk:1"])


def test_a_dense_model(tmp_path):
    moe.convert(ROOT / "tests/data/pytorch/dense_gated", tmp_path / "dense.moe")
    with moe.Model(tmp_path / "dense.moe") as model:
        recorded = analyse.record(model, list(range(2, 36)), [0.5])
        assert recorded.layers == [] and list(recorded.positive) == list(range(len(model.layers)))
        assert all(0.2 < share < 0.8 for share in recorded.positive.values())
        found = analyse.Analysis([recorded], [], [], [], [])
        assert [s.name for s in analyse.sections(found)] == ["activations"]
        assert "every layer is dense" in analyse.tables(found)
        curves_of(analyse.page(found))
        with pytest.raises(moe.UnsupportedError, match="a dense model has no routing"):
            analyse.sweep(model, [2, 3, 4], ["topk:1"])


def test_dense_layers_between_experts(tmp_path):
    moe.convert(ROOT / "tests/data/pytorch/every_second_layer", tmp_path / "mixed.moe")
    with moe.Model(tmp_path / "mixed.moe") as model:
        found = analyse.Analysis([analyse.record(model, list(range(2, 36)))], [], [], [], [])
    assert [x.layer for x in found.models[0].layers] == [1, 3]
    table = next(s.table for s in analyse.sections(found) if s.name == "activations")
    assert [row[:2] for row in table[1:5]] == [["0", "dense"], ["1", "experts"], ["2", "dense"], ["3", "experts"]]


@pytest.mark.parametrize("given, message", [
    (["MODEL", "-f", "EMPTY"], "two tokens or more, found 0"),
    (["MODEL", "-f", "BYTES"], "expected UTF-8"),
    (["MODEL", "-f", "NOWHERE"], "No such file"),
    (["NOWHERE", "-f", "TEXT"], "MOE_ERR_NOT_FOUND"),
    (["DENSE", "-f", "TEXT"], "no tokenizer"),
    (["ENCODER", "-f", "TEXT"], "expected a decoder"),
    (["MODEL", "TINY", "-f", "TEXT"], "need one tokenizer"),
    (["MODEL", "-f", "TEXT", "--other-run", "TINY"], "need one tokenizer"),
    (["MODEL", "-f", "TEXT", "--thresholds", "0.9"], "expected FROM:TO:STEP"),
    (["MODEL", "-f", "TEXT", "--thresholds", "0.5:2:0.5"], "TO <= 1"),
    (["MODEL", "-f", "TEXT", "--thresholds", "0:1:0.0001"], "at most 1000"),
    (["MODEL", "-f", "TEXT", "--tokens", "1"], "2 or more, found 1"),
    (["MODEL", "-f", "TEXT", "--topk", "99"], "expected 1..16, found 99"),
])
def test_bad_input(given, message, tmp_path, capsys):
    (tmp_path / "EMPTY").write_text("")
    (tmp_path / "TEXT").write_text(TEXT[:400])
    (tmp_path / "BYTES").write_bytes(b"abc\xff")
    names = {"MODEL": STORIES, "TINY": tmp_path / "tiny-1.moe"}
    if "TINY" in given:
        tiny(tmp_path, 1)
    for name, folder in (("DENSE", "pytorch/dense_gated"), ("ENCODER", "encoders/xlmr_maskedlm")):
        if name in given:
            moe.convert(ROOT / "tests/data" / folder, tmp_path / name)
    arguments = [str(names.get(a, tmp_path / a if a.isupper() else a)) for a in given]
    assert main(["analyse", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_no_models():
    with pytest.raises(moe.ArgumentError, match="expected one or more, found none"):
        analyse.analyse([], TEXT)


def test_thresholds():
    assert runs.thresholds_of("0.1:0.5:0.2") == [0.1, 0.3, 0.5]
    assert runs.thresholds_of("1:1:1") == [1.0]
