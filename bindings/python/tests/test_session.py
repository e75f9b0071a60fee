# SPDX-License-Identifier: MIT
"""Sessions: eval, score, save, load, fork, step, rewind, perplexity."""

import os
import threading

import numpy as np
import pytest
from conftest import PROMPT, ROOT

import moe


@pytest.fixture
def ids(model):
    return model.encode(PROMPT + ", there was a fox.")


def test_eval(model, session, ids):
    logits = session.eval(ids)
    assert logits.shape == (model.info.vocab_size,) and logits.dtype == np.float32
    assert session.position == len(ids)
    session.rewind(0)
    rows = session.eval_all(np.array(ids))
    assert rows.shape == (len(ids), model.info.vocab_size)
    np.testing.assert_array_equal(rows[-1], logits)
    session.rewind(3)
    session.append(ids[3:-1])
    np.testing.assert_array_equal(session.eval(ids[-1:]), logits)


def test_score(model, session, ids):
    scores = session.score(ids)
    assert scores.shape == (len(ids) - 1,) and session.position == len(ids)
    rows = model.session().eval_all(ids).astype(np.float64)
    expected = rows - np.logaddexp.reduce(rows, axis=-1, keepdims=True)
    np.testing.assert_allclose(scores, expected[np.arange(len(ids) - 1), ids[1:]], atol=2e-6)
    assert scores.dtype == np.float32
    with model.session() as other:
        np.testing.assert_array_equal(other.score(PROMPT + ", there was a fox."), scores)
        other.rewind(2)
        np.testing.assert_array_equal(other.score(ids[2:]), scores[1:])
        with pytest.raises(moe.RangeError, match="1536"):
            other.score([1536])
        assert other.score([]).shape == (0,)


def test_latent_cache(environment, model, tmp_path):
    with pytest.raises(moe.UnsupportedError, match="kv latent: layer 0"):
        model.session(kv="latent")
    with pytest.raises(ValueError, match="kv: expected one of default, f16, int8, f32, latent, found 'int9'"):
        model.session(kv="int9")
    moe.convert(ROOT / "tests/data/families/deepseek_v2", tmp_path / "m.moe", weights="f32")
    with moe.Model(tmp_path / "m.moe", environment) as deepseek:
        assert [layer.kv_latent for layer in deepseek.layers] == [32, 32]
        plain, latent = (deepseek.memory(kv=kv) for kv in (moe.KvType.F16, moe.KvType.LATENT))
        assert latent["KV cache"] * 4 == plain["KV cache"]
        assert latent["matrices for the latent cache"] > 0
        tokens = list(range(3, 40))
        with deepseek.session(kv=moe.KvType.LATENT) as session, deepseek.session(kv=moe.KvType.F32) as exact:
            np.testing.assert_allclose(session.eval(tokens), exact.eval(tokens), atol=0.02)
            with session.fork() as other:
                np.testing.assert_array_equal(other.eval([5]), session.eval([5]))


def test_save_and_load(model, session, ids, tmp_path):
    session.append(ids)
    data = session.save()
    session.save(tmp_path / "s.bin")
    assert (tmp_path / "s.bin").read_bytes() == data
    assert [p.name for p in tmp_path.iterdir()] == ["s.bin"]
    expected = session.generate(max_tokens=8).tokens()
    for source in (data, tmp_path / "s.bin", str(tmp_path / "s.bin")):
        with model.session(context=64) as other:
            other.load(source)
            assert other.position == len(ids)
            assert other.generate(max_tokens=8).tokens() == expected
    with pytest.raises(moe.FormatError, match="cut off"):
        session.load(data[:-1])
    assert session.position == len(ids) + 8
    with pytest.raises(moe.CorruptError, match="checksum"):
        session.load(data[:-1] + b"?")
    assert session.position == 0
    with pytest.raises(moe.ArgumentError, match="int8"):
        model.session(kv=moe.KvType.INT8).load(data)
    with pytest.raises(moe.TooLongError):
        model.session(context=3).load(data)
    with pytest.raises(FileNotFoundError):
        session.load(tmp_path / "none")


def test_fork(model, session, ids):
    session.append(ids)
    fork = session.fork()
    assert fork.position == len(ids) and fork.context == session.context
    mine = session.eval([5, 6])
    assert fork.position == len(ids)
    np.testing.assert_array_equal(fork.eval([5, 6]), mine)
    session.close()
    assert len(fork.generate(max_tokens=3).tokens()) == 3


def test_copy(model, session, ids):
    session.append(ids)
    with model.session(context=32) as other:
        other.append([7, 8, 9])
        other.copy(session, 3)
        assert other.position == 3
        other.append(ids[3:])
        np.testing.assert_array_equal(other.eval([5, 6]), session.eval([5, 6]))
        other.copy(session)
        assert other.position == session.position
        with pytest.raises(moe.RangeError, match="n_positions"):
            other.copy(session, 999)
        with pytest.raises(moe.ArgumentError, match="another session"):
            other.copy(other, 1)


def test_a_fork_outlives_its_model(ids):
    with moe.Model(ROOT / "examples/models/stories.moe") as model:
        session = model.session()
        session.append(ids)
    fork = session.fork()
    session.close()
    assert fork.position == len(ids)
    fork.close()


def test_a_failed_save_leaves_nothing_behind(session, ids, tmp_path, monkeypatch):
    session.append(ids)

    def fails(self, file):
        file.write(b"half")
        raise OSError("full")

    monkeypatch.setattr(type(session), "_save", fails)
    with pytest.raises(OSError, match="full"):
        session.save(tmp_path / "s.bin")
    assert list(tmp_path.iterdir()) == []


def test_save_replaces_a_file(session, ids, tmp_path):
    session.append(ids)
    path, link, notes = tmp_path / "s", tmp_path / "link", tmp_path / "s.partial"
    notes.write_text("mine")
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to("s")
    session.save(link)
    assert link.is_symlink() and path.read_bytes() == session.save()
    assert path.stat().st_mode & 0o777 == 0o600
    assert notes.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "s", "s.partial"]


def test_one_writer_of_a_file(model, ids, tmp_path, monkeypatch):
    first, second = model.session(), model.session()
    first.append(ids)
    second.append(ids[:2])
    save = type(first)._save

    def saves_twice(self, file):
        monkeypatch.setattr(type(first), "_save", save)
        with pytest.raises(moe.FileError, match="another program is writing it"):
            second.save(tmp_path / "s")
        save(self, file)

    monkeypatch.setattr(type(first), "_save", saves_twice)
    first.save(tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == first.save()
    second.save(tmp_path / "s")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(moe.FileError, match="a named pipe"):
        second.save(tmp_path / "pipe")


def test_step(model, ids):
    sessions = [model.session() for _ in range(3)]
    for i, s in enumerate(sessions):
        s.append(ids[: i + 1])
    logits = moe.step(sessions, ids[1:4])
    for i, row in enumerate(logits):
        np.testing.assert_array_equal(row, model.session().eval(ids[: i + 2]))
    with pytest.raises(moe.ArgumentError, match="3 sessions"):
        moe.step(sessions, ids[:2])
    with pytest.raises(moe.StateError):
        moe.step([sessions[0], sessions[0]], ids[:2])
    assert [s.position for s in sessions] == [2, 3, 4]


def test_eval_each(model, ids):
    prompt, first, second = (model.session() for _ in range(3))
    for s in (first, second):
        s.append(ids[:2])
    logits = moe.eval_each([first, prompt, second], [ids[2:3], ids[:4], ids[2:4]])
    for row, n in zip(logits, (3, 4, 4)):
        np.testing.assert_array_equal(row, model.session().eval(ids[:n]))
    assert [s.position for s in (first, prompt, second)] == [3, 4, 4]
    with pytest.raises(moe.ArgumentError, match="2 sessions"):
        moe.eval_each([first, second], [ids])
    with pytest.raises(moe.ArgumentError, match="session 1: no tokens"):
        moe.eval_each([first, second], [ids[:1], []])
    with pytest.raises(moe.StateError):
        moe.eval_each([first, first], [ids[:1], ids[:2]])
    assert [s.position for s in (first, prompt, second)] == [3, 4, 4]
    with model.session(chunk=2) as narrow:  # a piece longer than a pass takes several
        logits = moe.eval_each([narrow, second], [ids[:1], ids[4:9]])
    np.testing.assert_array_equal(logits[1], model.session().eval(ids[:9]))
    assert moe.eval_each([], []).shape == (0, 0)


@pytest.mark.parametrize("tokens, error", [([1.5], TypeError), (["a"], TypeError),
                                           ([[1, 2]], moe.ShapeError), ([2**40], moe.RangeError),
                                           ([-1], moe.RangeError), ([1536], moe.RangeError)])
def test_bad_tokens(session, tokens, error):
    with pytest.raises(error):
        session.eval(tokens)
    assert session.position == 0


def test_too_long(model):
    with model.session(context=4) as short:
        assert short.context == 4
        with pytest.raises(moe.TooLongError):
            short.eval([5] * 5)
        with pytest.raises(moe.RangeError):
            short.rewind(2**32)
        assert short.position == 0


def test_closed(model, ids):
    session = model.session()
    session.close()
    session.close()
    assert session.closed
    for action in (lambda: session.eval(ids), lambda: session.position, session.cancel,
                   lambda: moe.step([session], [1]), session.__enter__,
                   lambda: next(session.generate([1]))):
        with pytest.raises(moe.StateError, match="session is closed"):
            action()


def test_children_keep_parents(ids):
    env = moe.Environment(threads=1)
    model = moe.Model(ROOT / "examples/models/stories.moe", env)
    session = model.session()
    expected = session.eval(ids)
    env.close()
    model.close()
    with pytest.raises(moe.StateError, match="model is closed"):
        model.session()
    session.rewind(0)
    np.testing.assert_array_equal(session.eval(ids), expected)
    session.close()


def test_router_and_statistics(session, ids):
    with pytest.raises(moe.StateError):
        session.routing(0)
    with pytest.raises(moe.StateError):
        session.activations(0)
    session.count_routing()
    assert session.activations(0) == moe.ActivationStats(0, 0) and session.activations(0).share_positive == 0
    usual = session.eval(ids)
    stats = session.routing(0)
    inner = session.activations(0)
    assert inner == moe.ActivationStats(stats.n_activations, stats.n_positive)
    assert 0 < inner.share_positive == stats.n_positive / stats.n_activations < 1
    assert stats.n_experts == 16 and stats.n_tokens == 2 * len(ids)
    assert stats.tokens_per_expert.shape == (16,) and stats.experts_per_token.shape == (17,)
    assert stats.tokens_per_expert.sum() == 2 * stats.n_tokens
    assert stats.experts_per_token[2] == stats.n_tokens
    assert (stats.n_skipped, stats.skipped_probability) == (0, 0)
    session.rewind(0)
    session.set_router("topk:1")
    session.count_routing()
    assert not np.array_equal(session.eval(ids), usual)
    assert session.routing(0).experts_per_token[1] == 2 * len(ids)
    for own in (session.model.layers[0].router, "", None):
        session.rewind(0)
        session.set_router(own)
        np.testing.assert_array_equal(session.eval(ids), usual)
    with pytest.raises(moe.ArgumentError):
        session.set_router("nonsense")
    with pytest.raises(moe.RangeError):
        session.routing(4)
    with pytest.raises(moe.RangeError):
        session.activations(4)


def test_perplexity(session):
    text = (ROOT / "examples/models/stories.heldout.txt").read_text()[:20000]
    seen = []
    result = session.perplexity(text, lambda done, total: seen.append((done, total)))
    assert 1.2 < result.perplexity < 1.6
    assert result.perplexity == pytest.approx(np.exp(result.mean_nll))
    assert seen[-1][0] == seen[-1][1] == result.n_scored
    assert session.position == 0


def test_exception_in_a_callback(session):
    calls = []

    def fail(done, total):
        calls.append(done)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        session.perplexity([5] * 2000, fail)
    assert len(calls) == 1
    with pytest.raises(moe.CancelledError):
        session.perplexity([5] * 2000, lambda done, total: False)
    assert session.position == 0


def test_cancel_and_busy_from_another_thread(model):
    """A session in use refuses a second call. cancel() works from any thread."""
    with model.session() as session:
        inside, checked = threading.Event(), threading.Event()
        errors = []

        def progress(done, total):
            inside.set()
            checked.wait(60)

        def work():
            try:
                session.perplexity([5] * 5000, progress)
            except moe.MoeError as e:
                errors.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        assert inside.wait(60)
        with pytest.raises(moe.StateError):
            session.eval([1])
        session.cancel()
        checked.set()
        thread.join(60)
        assert [type(e) for e in errors] == [moe.CancelledError]
        session.eval([1])  # usable again


def test_close_during_a_call(model):
    session = model.session()
    result = session.perplexity([5] * 2000, lambda done, total: session.close())
    assert result.n_scored > 0 and session.closed
