# SPDX-License-Identifier: MIT
"""convert(), create_synthetic(), calibration, statistics and splitting of dense FFNs."""

import shutil

import pytest
from conftest import ROOT

import moe

SOURCE = ROOT / "tests/data/families/qwen2_moe"


def test_convert(environment, tmp_path):
    path = tmp_path / "q.moe"
    matrices, progress = [], []
    report = moe.convert(SOURCE, path, weights="int8", overrides={"head": "f32"}, verify=True,
                         on_matrix=matrices.append, progress=lambda *done: progress.append(done))
    assert report["verified"] is True and report["matrices"] == len(matrices)
    assert {m["format"] for m in matrices if m["matrix"] == "head"} == {"f32"}
    assert progress[-1][0] == progress[-1][1]
    with moe.Model(path, environment) as model:
        assert model.info.file_bytes == report["file_bytes"] == path.stat().st_size
        model.session().eval([1, 2])


def test_threads_do_not_change_the_file(tmp_path):
    for n in (1, 3):
        moe.convert(SOURCE, tmp_path / str(n), threads=n)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes()
    with pytest.raises(moe.MoeError, match="threads: expected 0..1024, found -1"):
        moe.convert(SOURCE, tmp_path / "m.moe", threads=-1)


def test_zeros_at_the_end_of_a_file(tmp_path):
    source = shutil.copytree(SOURCE, tmp_path / "cut")
    weights = source / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:len(whole) // 2].ljust(len(whole), b"\0"))
    with pytest.raises(moe.MoeError, match="only zeros from byte"):
        moe.convert(source, tmp_path / "m.moe")
    matrices = []
    moe.convert(source, tmp_path / "m.moe", allow_zeros=True, on_matrix=matrices.append)
    assert any(m.get("zeros") for m in matrices)


def test_calibration(tmp_path):
    source = ROOT / "tests/data/chat/script"
    matrices = []
    report = moe.convert(source, tmp_path / "m.moe", weights="int4", calibration="A text to read.",
                         on_matrix=matrices.append)
    assert report["calibration"]["tokens"] > 3
    assert report["calibration"]["weighted_matrices"] == sum("weighted_error" in m for m in matrices) > 0
    assert "calibration" not in moe.convert(source, tmp_path / "m.moe", weights="int4")
    for text, what in (("", "tokens"), (b"", "tokens")):
        with pytest.raises(moe.ArgumentError, match=what):
            moe.convert(source, tmp_path / "n.moe", weights="int4", calibration=text)
    with pytest.raises(moe.ArgumentError, match="changes nothing"):
        moe.convert(source, tmp_path / "n.moe", weights="f32", calibration="A text to read.")
    assert [p.name for p in tmp_path.iterdir()] == ["m.moe"]


def test_statistics(tmp_path):
    source, saved = ROOT / "tests/data/chat/script", tmp_path / "statistics"
    moe.convert(source, tmp_path / "a", weights="int8", calibration="A text to read.", save_statistics=saved)
    moe.convert(source, tmp_path / "a", weights="int4", calibration="A text to read.")
    report = moe.convert(source, tmp_path / "b", weights="int4", statistics=saved)
    assert report["calibration"]["passes"] == 0 < report["calibration"]["tokens"]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(moe.ArgumentError, match="another checkpoint"):
        moe.convert(SOURCE, tmp_path / "c", weights="int4", statistics=saved)
    with pytest.raises(moe.ArgumentError, match="found both"):
        moe.convert(source, tmp_path / "c", weights="int4", statistics=str(saved), calibration="A text.")
    with pytest.raises(moe.ArgumentError, match="none is given"):
        moe.convert(source, tmp_path / "c", weights="int4", save_statistics=saved)
    assert not (tmp_path / "c").exists()


def test_size(tmp_path):
    matrices = []
    report = moe.convert(SOURCE, tmp_path / "m.moe", bits=9, on_matrix=matrices.append)
    bits = 8 * sum(m["bytes"] for m in matrices) / report["weights"]
    assert report["size"]["bits"] == pytest.approx(bits) and bits <= 9 == report["size"]["most_bits"]
    assert all(m["sensitivity"] > 0 for m in matrices if "expected_error" in m)
    size = report["file_bytes"] + 50_000
    report = moe.convert(SOURCE, tmp_path / "m.moe", size=size, overrides={"head": "int8"})
    assert (tmp_path / "m.moe").stat().st_size == report["file_bytes"] <= size == report["size"]["most_bytes"]
    for options, what in (({"size": 1000}, "smallest possible file"), ({"bits": 0.1}, "at least"),
                          ({"bits": -1}, "expected 0 to 64"), ({"bits": float("nan")}, "expected 0 to 64"),
                          ({"size": size, "bits": 3}, "found both"), ({"size": size, "weights": "int4"}, "int4")):
        with pytest.raises(moe.ArgumentError, match=what):
            moe.convert(SOURCE, tmp_path / "n.moe", **options)
    with pytest.raises(moe.RangeError, match="most_bytes: -1"):
        moe.convert(SOURCE, tmp_path / "n.moe", size=-1)
    assert [p.name for p in tmp_path.iterdir()] == ["m.moe"]


def test_split_ffn(environment, tmp_path):
    source = ROOT / "tests/data/encoders/xlmr_maskedlm"
    logits = {}
    ways = {"dense": {}, "clusters": {"split_ffn": 4}, "order": {"split_ffn": 4, "split_by": "in-order"}}
    for name, how in ways.items():
        text = {"calibration": "A text to read, and another one."} if how else {}
        report = moe.convert(source, tmp_path / name, weights="f32", **how, **text)
        assert report.get("split", {}).get("experts", 0) == how.get("split_ffn", 0)
        with moe.Model(tmp_path / name, environment) as model:
            session = model.session()
            logits[name] = list(session.encode([0, 5, 6, 7, 2], outputs=True).outputs[2])
            if how:
                session.set_router("topk:1")
                few = list(session.encode([0, 5, 6, 7, 2], outputs=True).outputs[2])
                assert few != pytest.approx(logits["dense"], abs=1e-4)
    for name in ("clusters", "order"):
        assert logits[name] == pytest.approx(logits["dense"], abs=1e-4)


def test_what_cannot_be_split(tmp_path):
    source = ROOT / "tests/data/encoders/xlmr_maskedlm"
    for n, what in ((7, "do not divide"), (-1, "split_ffn"), (1, "2 experts")):
        with pytest.raises(moe.ArgumentError, match=what):
            moe.convert(source, tmp_path / "m.moe", calibration="A text to read.", split_ffn=n)
    with pytest.raises(moe.ArgumentError, match="none is given"):
        moe.convert(source, tmp_path / "m.moe", split_ffn=4)
    with pytest.raises(ValueError, match="split_by"):
        moe.convert(source, tmp_path / "m.moe", calibration="A text to read.", split_ffn=4, split_by="halves")
    assert list(tmp_path.iterdir()) == []


def test_refused(tmp_path):
    with pytest.raises(moe.NotFoundError, match="nowhere"):
        moe.convert(tmp_path / "nowhere", tmp_path / "a.moe")
    with pytest.raises(moe.ArgumentError, match="int9"):
        moe.convert(SOURCE, tmp_path / "a.moe", weights="int9")
    assert list(tmp_path.iterdir()) == []


def fail(*_arguments):
    raise KeyError("mine")


@pytest.mark.parametrize("callback", ["progress", "on_matrix"])
def test_exception_in_a_callback(tmp_path, callback):
    with pytest.raises(KeyError, match="mine"):
        moe.convert(SOURCE, tmp_path / "a.moe", **{callback: fail})
    assert list(tmp_path.iterdir()) == []


def test_cancelled(tmp_path):
    with pytest.raises(moe.CancelledError):
        moe.convert(SOURCE, tmp_path / "a.moe", progress=lambda done, total: False)
    assert list(tmp_path.iterdir()) == []


def test_synthetic(environment, tmp_path):
    path = tmp_path / "tiny.moe"
    assert "tiny" in moe.synthetic_shapes()
    moe.save_synthetic("tiny", path, seed=3)
    with moe.Model(path, environment) as model:
        assert model.session().generate([1], max_tokens=4).tokens()
        with pytest.raises(ValueError):
            model.session(context=2**31)
    with pytest.raises(moe.MoeError, match="no-such-shape"):
        moe.save_synthetic("no-such-shape", path)
