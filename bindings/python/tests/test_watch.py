# SPDX-License-Identifier: MIT
"""Routing observed and changed through a callback."""

import moe
import numpy as np
import pytest
from conftest import ROOT


@pytest.fixture
def ids(model):
    return model.encode("Once upon a time")


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_what_a_watcher_sees(model, session, ids):
    seen = []

    def watch(c):
        seen.append((c.layer, c.position, *(np.copy(a) for a in (c.counts, c.experts, c.weights, c.hidden, c.scores))))
        assert c.weights.flags.writeable and not c.hidden.flags.writeable and not c.scores.flags.writeable

    usual = model.session().eval(ids)
    session.watch_routing(watch)
    np.testing.assert_array_equal(session.eval(ids), usual)
    session.watch_routing(None)
    session.append(ids)
    assert [s[:2] for s in seen] == [(layer, 0) for layer in range(4)]
    n = 2 * len(ids)  # sub-tokens
    for _, _, counts, experts, weights, hidden, scores in seen:
        assert (counts == 2).all() and hidden.shape == (n, 96) and scores.shape == (n, 16)
        np.testing.assert_array_equal(experts, np.argsort(-scores, axis=-1, kind="stable")[:, :2])
        np.testing.assert_allclose(weights, np.take_along_axis(softmax(scores), experts, -1), rtol=1e-5)
    assert len({s[5].tobytes() for s in seen}) == 4


def test_what_a_watcher_keeps_is_its_own(ids):
    """The library's memory is used again by each layer, and freed with the session."""
    kept, copies = [], []

    def watch(c):
        arrays = (c.counts, c.experts, c.weights, c.hidden, c.scores)
        kept.append(arrays)
        copies.append([np.copy(a) for a in arrays])

    with moe.Model(ROOT / "examples/models/stories.moe") as model, model.session() as session:
        session.watch_routing(watch)
        usual = session.eval(ids)
        for counts, experts, weights, _, _ in kept:  # too late: nobody reads it
            counts[:], experts[:], weights[:] = 77, 99, 1e30
        session.rewind(0)
        np.testing.assert_array_equal(session.eval(ids), usual)
    n = len(kept) // 2
    for arrays, before in zip(kept[n:], copies[n:]):
        assert all(a.base is None for a in arrays)
        for array, copy in zip(arrays, before):
            np.testing.assert_array_equal(array, copy)


def test_choices_of_another_shape_are_an_error(session, ids):
    def watch(c):
        c.counts.resize(c.counts.size + 1, refcheck=False)

    session.watch_routing(watch)
    with pytest.raises(moe.ShapeError, match="routing choices"):
        session.eval(ids)


def test_scores_are_of_what_the_router_read(session, ids):
    """The router is linear: one matrix maps the hidden states to the scores of every sub-token."""
    hidden, scores = [], []

    def watch(c):
        if c.layer == 1:
            hidden.append(c.hidden.copy())
            scores.append(c.scores.copy())

    session.watch_routing(watch)
    session.append(np.arange(200) % 1000 + 5)
    h, z = np.concatenate(hidden), np.concatenate(scores)
    router = np.linalg.lstsq(h, z, rcond=None)[0]
    np.testing.assert_allclose(h @ router, z, atol=1e-3)


def test_what_a_watcher_writes_is_used(session, ids):
    usual = session.eval(ids)
    session.rewind(0)

    def first_alone(c):
        c.counts[:] = 1

    session.watch_routing(first_alone)
    session.count_routing()
    watched = session.eval(ids)
    assert session.routing(0).experts_per_token[1] == 2 * len(ids)
    session.watch_routing(None)
    session.set_router("topk:1")
    session.rewind(0)
    np.testing.assert_array_equal(session.eval(ids), watched)
    assert not np.array_equal(watched, usual)


def test_what_a_watcher_raises_comes_out(model, session, ids):
    def fail(c):
        raise KeyError("mine")

    usual = model.session().eval(ids)
    for use in (lambda: session.eval(ids), lambda: session.perplexity([5] * 2000),
                lambda: list(session.generate("Once", max_tokens=4))):
        session.watch_routing(fail)
        with pytest.raises(KeyError, match="mine"):
            use()
        session.watch_routing(None)
        session.rewind(0)
        np.testing.assert_array_equal(session.eval(ids), usual)
        session.rewind(0)


def test_it_comes_out_of_the_call_that_it_was_raised_in(session):
    session._raised.exception, session._raised.thread = ValueError("in another thread"), 0
    assert session.position == 0 and "0 of" in repr(session)
    with pytest.raises(ValueError, match="in another thread"):
        session._raise_watched()


def test_a_new_watcher_begins_without_what_another_raised(session, ids):
    session._raised.exception = ValueError("of another")
    session.watch_routing(lambda _choices: None)
    session.append(ids)
    session._raise_watched()


def test_a_fork_is_not_watched(session, ids):
    seen = []
    session.watch_routing(lambda c: seen.append(c.layer))
    with session.fork() as other:
        other.append(ids)
    assert seen == []


def test_a_router_by_token_has_no_scores(tmp_path):
    moe.convert(ROOT / "tests/data/pytorch/hash", tmp_path / "hash.moe")
    seen = []
    with moe.Model(tmp_path / "hash.moe") as model, model.session() as session:
        session.watch_routing(lambda c: seen.append((c.scores, c.hidden.shape)))
        session.append([1, 2, 3])
        d = model.info.d_model
    assert seen and all(scores is None and shape == (3, d) for scores, shape in seen)
