# SPDX-License-Identifier: MIT
"""Model.batch() gives what generate() gives for each prompt."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import PROMPT, ROOT, STORIES

import moe

PROMPTS = [PROMPT, "The fox", "", "Clara found a key", "One day the", "In the forest", PROMPT + " there",
           "The fox was very", "A", "She"]


def alone(model, prompt, **options):
    context = options.pop("context", 0)
    with model.session(context=context) as session:
        generation = session.generate(prompt, **options)
        pieces = list(generation)
        text = "".join(piece.text for piece in pieces)
        tokens = tuple(piece.token for piece in pieces if piece.token >= 0)
        return text, tokens, generation.result.finish, generation.result.n_prompt


def fields(result):
    assert result.error is None
    return result.text, result.tokens, result.finish, result.n_prompt


@pytest.mark.parametrize("sessions", [1, 3, 16])
@pytest.mark.parametrize("options", [
    {"max_tokens": 20}, {"max_tokens": 20, "temperature": 1.0, "seed": 5, "repetition_penalty": 1.3},
    {"max_tokens": 60, "stop": ["fox", ".", " was a", "was"]}, {"max_tokens": 1},
    {"context": 24, "ignore_eos": True}])
def test_equals_generate(model, sessions, options):
    results = [fields(r) for r in model.batch(PROMPTS, sessions=sessions, **options)]
    assert results == [alone(model, prompt, **dict(options)) for prompt in PROMPTS]


def test_end_of_text_and_stops_end_texts(model):
    finishes = {r.finish for r in model.batch(PROMPTS, sessions=4, context=512)}
    assert finishes == {moe.Finish.EOS}
    stopped = list(model.batch(PROMPTS, sessions=4, stop="."))
    assert moe.Finish.STOP in {r.finish for r in stopped} and not any("." in r.text for r in stopped)


def test_tokens_as_prompts(model):
    ids = np.array(model.encode("A caf\u00e9 in the forest"))
    for n in range(1, len(ids) + 1):  # also in the middle of a character
        assert fields(next(model.batch([ids[:n]], max_tokens=6))) == alone(model, ids[:n], max_tokens=6)


def byte_tokens(model):
    """Tokens that are no whole characters."""
    return [t for t in range(model.info.vocab_size) if "\ufffd" in model.decode([t])]


@pytest.mark.parametrize("options", [{}, {"stop": ["\ufffd"]}, {"stop": ["\ufffd\ufffd", "\ufffda"]}])
def test_parts_of_characters(model, options):
    rng, parts = np.random.default_rng(1), byte_tokens(model)
    assert len(parts) == 128
    prompts = [[1165, 129]] + [[1165, *rng.choice(parts, n)] for n in (1, 2, 3, 4) * 5]
    made = [{}, {int(t): 30.0 for t in rng.choice(parts, 20)}, {t: 40.0 for t in parts}]
    for bias in made:
        how = {"bias": bias, "temperature": 2.0, "max_tokens": 12, **options}
        results = [fields(r) for r in model.batch(prompts, sessions=4, **how)]
        assert results == [alone(model, prompt, **how) for prompt in prompts]


def test_a_long_text_decodes_few_tokens_at_a_time(model, monkeypatch):
    decoded, decode = [], moe.Tokenizer.decode

    def counted(self, tokens, **options):
        decoded.append(len(tokens))
        return decode(self, tokens, **options)

    how = {"stop": ["xyz"], "max_tokens": 200, "ignore_eos": True}
    prompt = model.encode("The fox found a key. " * 30)
    monkeypatch.setattr(moe.Tokenizer, "decode", counted)
    result = fields(next(model.batch([prompt], **how)))
    monkeypatch.undo()
    assert result == alone(model, prompt, **how) and len(result[1]) == 200
    assert len(prompt) > 150 and max(decoded) <= 64


def test_a_text_without_a_tokenizer(tmp_path):
    moe.convert(ROOT / "tests/data/pytorch/dense_gated", tmp_path / "dense.moe")
    with moe.Model(tmp_path / "dense.moe") as model:
        first, text, last = model.batch([[1, 2], "A text", [3]], max_tokens=3)
        assert type(text.error) is moe.UnsupportedError and "tokenizer" in str(text.error)
        assert [fields(first), fields(last)] == [alone(model, p, max_tokens=3) for p in ([1, 2], [3])]
        with pytest.raises(moe.UnsupportedError, match="stop"):
            model.batch([[1, 2]], stop="x")


def test_a_bad_prompt_stops_no_other(model):
    prompts = [PROMPT, "long " * 50, "The fox", [], [10**6], PROMPT, [1.5], "\udcff", "She"]
    bad = {1: moe.TooLongError, 3: moe.ArgumentError, 4: moe.RangeError, 6: TypeError}
    results = list(model.batch(prompts, sessions=2, max_tokens=5, context=32))
    for i, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        if i in bad:
            assert type(result.error) is bad[i] and result.tokens == () and result.finish is None
        else:
            assert fields(result) == alone(model, prompt, max_tokens=5, context=32)


def test_prompts_are_taken_as_sessions_get_free(model):
    taken = []

    def endless():
        while True:
            taken.append(len(taken))
            yield PROMPT

    batch = model.batch(endless(), sessions=3, max_tokens=2)
    expected = alone(model, PROMPT, max_tokens=2)
    assert [fields(next(batch)) for _ in range(5)] == [expected] * 5
    assert len(taken) <= 8
    batch.close()
    assert next(batch, None) is None


def test_a_cap_without_room_for_all_sessions(model, monkeypatch):
    made, session = [], moe.Model.session

    def limited(self, **options):
        if len(made) == 2:
            raise moe.BudgetError("no room")
        made.append(session(self, **options))
        return made[-1]

    monkeypatch.setattr(moe.Model, "session", limited)
    results = [fields(r) for r in model.batch(PROMPTS, max_tokens=5)]
    monkeypatch.undo()
    assert results == [alone(model, prompt, max_tokens=5) for prompt in PROMPTS] and len(made) == 2


@pytest.mark.parametrize("chunk", [0, 32])
def test_a_cap_with_room_for_few_sessions(environment, model, chunk):
    how = {"context": 64, "chunk": chunk}
    with moe.Model(STORIES, environment, memory="100M", **how) as whole:
        cap, least = (whole.memory_plan(sessions=n, **how).least_bytes for n in (3, 4))
    with moe.Model(STORIES, environment, memory_bytes=cap, **how) as capped:
        batch = capped.batch(PROMPTS, max_tokens=5, **how)
        results = [fields(next(batch))]
        assert capped._native._holders - 1 == 3
        results += map(fields, batch)
        assert list(map(fields, capped.batch(PROMPTS, sessions=3, max_tokens=5, **how))) == results
        with pytest.raises(moe.BudgetError, match=f"4 sessions .* {least} bytes at least; there is room for 3"):
            next(capped.batch(PROMPTS, sessions=4, **how))
    assert results == [alone(model, prompt, max_tokens=5) for prompt in PROMPTS]


@pytest.mark.parametrize("n", range(1, 17))
def test_what_the_plan_names_is_granted(environment, n):
    """In 200 random cases: one by one, or each by a thread of its own at the same time."""
    random = np.random.default_rng(n)
    for case in range(13 if n <= 8 else 12):
        how = {"context": int(random.integers(4, 200)), "chunk": int(random.choice([0, random.integers(1, 100)])),
               "kv": str(random.choice(["f16", "int8", "f32"]))}
        with moe.Model(STORIES, environment, memory="100M", **how) as whole:
            least = whole.memory_plan(sessions=n, **how).least_bytes
        cap = least + int(random.choice([0, random.integers(0, 10**6)]))

        def make(model):
            session = model.session(**how)
            session.append([1, 2, 3])
            return session

        with moe.Model(STORIES, environment, memory_bytes=cap, **how) as capped:
            plan = capped.memory_plan(sessions=n, **how)
            assert plan.least_bytes == least and plan.needed_bytes <= cap
            if case % 2 == 0:
                sessions = [make(capped) for _ in range(n)]
            else:
                with ThreadPoolExecutor(n) as pool:
                    sessions = list(pool.map(make, [capped] * n))
            assert sessions[0].memory_stats.peak_bytes <= cap
            if cap == least:
                with pytest.raises(moe.BudgetError):
                    capped.session(**how)


def test_closing_frees_the_sessions(environment):
    model = moe.Model(STORIES, environment)
    batch = model.batch([PROMPT] * 4, sessions=2, max_tokens=50)
    next(batch)
    native = model._native
    assert native._holders == 3
    batch.close()
    assert native._holders == 1
    assert list(model.batch([])) == []


@pytest.mark.parametrize("options, error", [
    ({"sessions": 0}, moe.ArgumentError), ({"max_tokens": -1}, moe.RangeError),
    ({"stop": ["x", ""]}, moe.ArgumentError), ({"max_tokens": 2.5}, TypeError),
    ({"max_tokens": 2**40}, moe.RangeError), ({"sessions": 2.0}, TypeError), ({"stop": ["x"] * 65}, moe.RangeError),
    ({"stop": "\u00e9" * 2049}, moe.RangeError), ({"stop": "\ud800"}, moe.ArgumentError),
    ({"stop": "a\0"}, moe.ArgumentError), ({"stop": [3]}, TypeError)])
def test_arguments_are_checked_at_once(model, options, error):
    with pytest.raises(error):
        model.batch([PROMPT], **options)
    with pytest.raises(moe.ArgumentError, match="several"):
        model.batch(PROMPT)


def test_a_bad_sampling_ends_the_batch(model):
    with pytest.raises(moe.RangeError, match="temperature"):
        list(model.batch([PROMPT], temperature=-1.0))
