# SPDX-License-Identifier: MIT
"""Generation: pieces, sampling, drafts, stops, callbacks, and loops that are left early."""

import contextlib
import gc
import math
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import PROMPT, STORIES

import moe


def test_pieces(model, session):
    generation = session.generate(PROMPT, max_tokens=20, logprobs=3)
    pieces = list(generation)
    assert [p.token for p in pieces] == model.session().generate(PROMPT, max_tokens=20).tokens()
    assert len(pieces) == 20
    for p in pieces:
        assert len(p.top) == 3 and p.token == p.top[0].token and p.logprob == p.top[0].logprob
    assert generation.result.finish == moe.Finish.LENGTH
    assert generation.result.n_generated == 20
    assert session.position == len(model.encode(PROMPT)) + 20
    assert model.decode([p.token for p in pieces]).strip() == "".join(map(str, pieces)).strip()


def test_goes_on_after_tokens(model, session):
    whole = model.session().generate(PROMPT, max_tokens=12).text()
    first = session.generate(model.encode(PROMPT), max_tokens=5).text()
    assert first + session.generate(max_tokens=7).text() == whole


def test_sampling(model):
    def text(**options):
        return model.session().generate(PROMPT, max_tokens=30, **options).text()

    hot = {"temperature": 1.0, "seed": 5}
    assert text(**hot) == text(**hot) != text(temperature=1.0, seed=6)
    assert text(temperature=1.0, seed=5, top_k=1) == text() == text(temperature=1, top_p=1e-6)
    first = model.session().generate(PROMPT, max_tokens=1).tokens()[0]
    banned = model.session().generate(PROMPT, max_tokens=1, bias={first: -math.inf}).tokens()
    assert banned != [first]


def test_guesses_change_nothing_but_the_speed(model):
    def generated(**options):
        generation = model.session().generate(PROMPT, max_tokens=200, **options)
        tokens = generation.tokens()
        return tokens, generation.result.n_drafted, generation.result.n_accepted

    for how in ({}, {"temperature": 1.0, "seed": 5}):
        plain, guessed = generated(**how), generated(max_draft=8, **how)
        assert plain == (guessed[0], 0, 0)
        assert guessed[1] > 0 and 0 <= guessed[2] <= guessed[1]
    with pytest.raises(moe.ArgumentError, match="logits callback"):
        model.session().generate(PROMPT, max_draft=8, logits_processor=lambda t, x: None).text()


def test_sample(session):
    session.append([0, 301, 716])
    best = session.sample(logprobs=4)
    assert best.token == best.top[0].token and len(best.top) == 4
    assert session.sample(moe.Sampling(bias={7: 100.0})).token == 7
    with pytest.raises(moe.RangeError):
        session.sample(moe.Sampling(temperature=-1))
    assert session.position == 3


def test_stop(session):
    generation = session.generate(PROMPT, max_tokens=100, stop=".")
    assert "." not in generation.text()
    assert generation.result.finish == moe.Finish.STOP


@pytest.mark.parametrize("options, error", [
    ({"temperature": -1}, moe.RangeError), ({"logprobs": 65}, moe.RangeError),
    ({"max_tokens": -1}, moe.RangeError), ({"max_draft": 17}, moe.RangeError), ({"seed": -1}, ValueError),
    ({"bias": {9999: 1.0}}, moe.MoeError), ({"stop": "a\0b"}, ValueError)])
def test_wrong_options(session, options, error):
    with pytest.raises(error):
        session.generate(PROMPT, **options).text()
    session.eval([1])  # the session is not in use


def test_empty_session(session):
    with pytest.raises(moe.StateError, match="empty"):
        next(session.generate())


def test_left_early(model, session):
    with session.generate(PROMPT, max_tokens=100) as generation:
        taken = [next(generation) for _ in range(5)]
        with pytest.raises(moe.StateError):
            session.eval([1])
    assert generation.result.finish == moe.Finish.CALLBACK
    assert session.position == len(model.encode(PROMPT)) + len(taken)
    assert list(generation) == []


def test_dropped(session):
    before = threading.active_count()
    for _piece in session.generate(PROMPT):
        break
    gc.collect()
    assert threading.active_count() == before
    assert session.generate([5], max_tokens=3).tokens()


def test_a_generation_that_never_started(session):
    session.generate(PROMPT).close()
    assert session.position == 0


def test_exception_in_the_loop(session):
    with pytest.raises(KeyError), session.generate(PROMPT) as generation:
        for _piece in generation:
            raise KeyError("mine")
    assert session.eval([1]) is not None


def test_cancel(session):
    generation = session.generate(PROMPT)
    next(generation)
    session.cancel()
    with pytest.raises(moe.CancelledError):
        list(generation)
    assert list(generation) == []


def test_cancel_from_another_thread(model):
    with model.session() as session:
        first = threading.Event()

        def cancel():
            first.wait(60)
            session.cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(moe.CancelledError):
            while True:
                for _piece in session.generate(PROMPT, ignore_eos=True):
                    first.set()
                session.rewind(0)
        thread.join()


def test_close_session(model):
    session = model.session()
    generation = session.generate(PROMPT)
    next(generation)
    session.close()
    assert list(generation) == []
    assert generation.result.finish == moe.Finish.CALLBACK


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise KeyError('mine')"])
def test_unfinished_at_exit(end):
    """An interpreter that exits during a generation neither hangs nor crashes."""
    program = (f"import sys, moe\ns = moe.Model({str(STORIES)!r}).session()\n"
               f"g = s.generate({PROMPT!r})\nnext(g)\n{end}\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(end, 1), done.stderr
    assert ("mine" in done.stderr) == ("mine" in end)


def test_several_threads(model):
    expected = model.session().generate(PROMPT, max_tokens=30).text()
    found = []
    threads = [threading.Thread(target=lambda: found.append(
        model.session().generate(PROMPT, max_tokens=30).text())) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert found == [expected] * 4


def test_logits_processor(model):
    def text(**options):
        return model.session().generate(PROMPT, max_tokens=8, **options).tokens()

    seen = []

    def ban_first(tokens, logits):
        seen.append(len(tokens))
        logits[logits.argmax()] = -math.inf

    plain = text()
    assert text(logits_processor=lambda _tokens, _logits: None) == plain
    second = text(logits_processor=ban_first)
    assert second[0] != plain[0]
    n = len(model.encode(PROMPT))
    assert seen == list(range(n, n + 8))
    only = np.full(model.info.vocab_size, -math.inf, np.float32)
    only[77] = 0
    assert text(logits_processor=lambda _tokens, _logits: only) == [77] * 8
    chat = model.chat(template="plain")
    assert chat.reply("Hello", max_tokens=2, logits_processor=lambda _t, _l: only).tokens() == [77] * 2


@pytest.mark.parametrize("exception", [StopIteration, StopAsyncIteration])
def test_a_stop_iteration_does_not_end_the_pieces(session, exception):
    def stop(_tokens, _logits):
        raise exception

    with pytest.raises(RuntimeError, match=exception.__name__) as caught:
        session.generate(PROMPT, logits_processor=stop).text()
    assert isinstance(caught.value.__cause__, exception)


def test_close_cancels_until_it_is_heard(session, monkeypatch):
    """A cancel before the library's call begins has no effect, so close() repeats it."""
    begun, heard, cancels = threading.Event(), threading.Event(), []
    generate, cancel = moe.Generation._generate, session.cancel

    def late(*arguments):
        begun.set()
        assert heard.wait(30)
        return generate(*arguments)

    def count():
        cancels.append(cancel())
        if len(cancels) == 2:
            heard.set()

    monkeypatch.setattr(moe.Generation, "_generate", staticmethod(late))
    monkeypatch.setattr(session, "cancel", count)
    generation = session.generate(PROMPT)

    def take():
        with contextlib.suppress(moe.CancelledError):
            next(generation)

    taking = threading.Thread(target=take)
    taking.start()
    assert begun.wait(30)
    generation.close()
    taking.join(30)
    assert heard.is_set() and list(generation) == []


def test_a_logits_processor_that_fails(model, session):
    def fail(_tokens, _logits):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        session.generate(PROMPT, max_tokens=3, logits_processor=fail).text()
    with pytest.raises(moe.ShapeError, match="logits_processor"):
        session.generate(max_tokens=3, logits_processor=lambda _t, logits: logits[:-1]).text()
    with pytest.raises(moe.NonFiniteError, match="logits callback"):
        session.generate(max_tokens=3, logits_processor=lambda _t, l: l * math.nan).text()
    with pytest.raises(moe.StateError):
        session.generate(max_tokens=3, logits_processor=lambda _t, _l: session.append([1])).text()
    assert session.position == len(model.encode(PROMPT))
