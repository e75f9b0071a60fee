# SPDX-License-Identifier: MIT
"""Completions of texts and embeddings in the format of OpenAI's API, and Model.generate()."""

import asyncio
import base64
import gc
import json

import numpy as np
import pytest
from conftest import PROMPT

import moe


def texts_of(pieces):
    return "".join(p.text for p in pieces)


def test_generate_of_a_model(model, session):
    assert texts_of(model.generate(PROMPT, max_tokens=8)) == texts_of(session.generate(PROMPT, max_tokens=8))
    begun = model.generate(PROMPT, max_tokens=8, context=64)
    next(begun)
    del begun
    gc.collect()
    with pytest.raises(moe.StateError, match="empty"):
        next(model.generate(()))


def test_completion(model, session):
    c = model.create_completion(PROMPT, max_tokens=8)
    assert json.loads(json.dumps(c)) == c
    assert c["object"] == "text_completion" and c["id"].startswith("cmpl-") and c["model"] == model.info.name
    expected = texts_of(session.generate(PROMPT, max_tokens=8))
    assert c["choices"] == [{"index": 0, "text": expected, "logprobs": None, "finish_reason": "length"}]
    n = len(model.encode(PROMPT))
    assert c["usage"] == {"prompt_tokens": n, "completion_tokens": 8, "total_tokens": n + 8}
    assert model.create_completion(PROMPT)["usage"]["completion_tokens"] == 16
    assert model.create_completion(model.encode(PROMPT), max_tokens=8)["choices"] == c["choices"]
    echoed = model.create_completion(PROMPT, max_tokens=8, echo=True)["choices"][0]["text"]
    assert echoed == PROMPT + expected
    stopped = model.create_completion(PROMPT, max_tokens=60, stop=["girl"])["choices"][0]
    assert stopped["finish_reason"] == "stop" and "girl" not in stopped["text"]


def test_several_prompts(model):
    prompts = [PROMPT, "The fox"]
    both = model.create_completion(prompts, max_tokens=6)
    alone = [model.create_completion(p, max_tokens=6) for p in prompts]
    assert [c["text"] for c in both["choices"]] == [a["choices"][0]["text"] for a in alone]
    assert [c["index"] for c in both["choices"]] == [0, 1]
    assert both["usage"]["total_tokens"] == sum(a["usage"]["total_tokens"] for a in alone)


def test_logprobs(model, session):
    found = model.create_completion(PROMPT, max_tokens=4, logprobs=2)["choices"][0]
    pieces = [p for p in session.generate(PROMPT, max_tokens=4, logprobs=2) if p.token >= 0]
    lists = found["logprobs"]
    assert lists["token_logprobs"] == [p.logprob for p in pieces]
    assert lists["tokens"] == [model.decode([p.token]) for p in pieces]
    assert [len(t) for t in lists["top_logprobs"]] == [2] * 4
    assert lists["text_offset"][0] == 0 and lists["text_offset"] == sorted(lists["text_offset"])


def test_streams(model):
    whole = model.create_completion(PROMPT, max_tokens=8, echo=True)["choices"][0]
    chunks = list(model.create_completion(PROMPT, max_tokens=8, echo=True, stream=True))
    assert "".join(c["choices"][0]["text"] for c in chunks) == whole["text"]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert len({c["id"] for c in chunks}) == 1

    async def read():
        return [c async for c in model.create_completion(PROMPT, max_tokens=8, stream=True)]

    assert "".join(c["choices"][0]["text"] for c in asyncio.run(read())) == whole["text"].removeprefix(PROMPT)


def test_what_cannot_be_completed(model):
    for arguments, words in (({"n": 2}, "n: expected 1"), ({"suffix": "end"}, "suffix"), ({"colour": 1}, "colour"),
                             ({"best_of": 3}, "best_of")):
        with pytest.raises(moe.ArgumentError, match=words):
            model.create_completion(PROMPT, **arguments)
    for prompt in (7, [], [PROMPT, 3], b"bytes"):
        with pytest.raises(moe.ArgumentError, match="prompt"):
            model.create_completion(prompt)
    with pytest.raises(moe.ArgumentError, match="stream"):
        model.create_completion([PROMPT, PROMPT], stream=True)
    assert model.create_completion(PROMPT, max_tokens=2, top_p=None, seed=None)["choices"][0]["text"]


def test_embeddings(model, session):
    texts = [PROMPT, "The fox"]
    found = model.create_embedding(texts)
    assert json.loads(json.dumps(found)) == found
    vectors = session.embed(texts, "mean")
    for i, (data, vector) in enumerate(zip(found["data"], vectors, strict=True)):
        assert data["index"] == i and data["object"] == "embedding"
        np.testing.assert_allclose(data["embedding"], vector / np.linalg.norm(vector), rtol=1e-6, atol=1e-7)
    assert found["usage"]["total_tokens"] == sum(len(model.encode(t)) for t in texts)
    assert found["model"] == model.info.name and found["object"] == "list"
    ids = model.create_embedding(model.encode(PROMPT))["data"][0]["embedding"]
    assert ids == found["data"][0]["embedding"]
    coded = model.create_embedding(PROMPT, encoding_format="base64")["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(coded), "<f4"), np.float32(ids))
    for arguments, words in (({"encoding_format": "hex"}, "hex"), ({"dimensions": 3}, "dimensions")):
        with pytest.raises(moe.ArgumentError, match=words):
            model.create_embedding(PROMPT, **arguments)
    for given in ("", [], [""], 5):
        with pytest.raises(moe.ArgumentError, match="expected a (str|text)"):
            model.create_embedding(given)


IDLE = {"frequency_penalty": 0, "presence_penalty": 0.0, "response_format": {"type": "text"}, "user": "me",
        "metadata": {"a": "b"}, "store": False, "model": "mine", "logprobs": False}


@pytest.mark.parametrize("key, value", [("frequency_penalty", 0.5), ("response_format", {"type": "xml"}),
                                        ("max_tokens", 0), ("max_tokens", -1), ("logit_bias", {"x": 1})])
def test_arguments_of_clients(model, key, value):
    assert model.create_completion(PROMPT, max_tokens=2, **IDLE)["choices"][0]["logprobs"] is None
    for call in (model.create_completion, lambda _text, **given: model.create_chat_completion(
            [{"role": "user", "content": "Hi", "name": "me"}], template="{{ messages[0]['content'] }}", **given)):
        call(PROMPT, **{"max_tokens": 2, **IDLE})
        with pytest.raises(moe.ArgumentError, match=f"{key}: expected"):
            call(PROMPT, **{key: value})


def test_formats_of_answers(model):
    form = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"enum": ["yes", "no"]}}}
    messages = [{"role": "user", "content": "Hi"}]
    chat = model.create_chat_completion(messages, template="plain", response_format=form)
    text = model.create_completion(PROMPT, response_format=form, max_tokens=60)
    for found, said in ((chat, chat["choices"][0]["message"]["content"]), (text, text["choices"][0]["text"])):
        assert json.loads(said) in ("yes", "no") and found["choices"][0]["finish_reason"] == "stop"
    text = model.create_completion(PROMPT, response_format={"type": "json_object"}, max_tokens=60)["choices"][0]["text"]
    assert text.lstrip().startswith("{")
    with pytest.raises(moe.ArgumentError, match="no 'schema'"):
        model.create_completion(PROMPT, response_format={"type": "json_schema"})
    with pytest.raises(moe.ArgumentError, match="cannot be given together"):
        model.create_completion(PROMPT, response_format=form, json_schema={"const": 1})
    schema = form["json_schema"]["schema"]
    for wrong, name in (({"type": "json_object", "schema": schema}, "response_format: unknown: 'schema'"),
                        ({"type": "text", "x": 1}, "response_format: unknown: 'x'"),
                        ({**form, "schema": schema}, "response_format: unknown: 'schema'"),
                        ({"type": "json_schema", "json_schema": {"schema": schema, "x": 1}}, "json_schema: unknown: 'x'")):
        with pytest.raises(moe.ArgumentError, match=name):
            model.create_completion(PROMPT, response_format=wrong)


def test_a_session_is_closed_where_generate_raises(model, monkeypatch):
    closed, close = [], moe.Session.close
    monkeypatch.setattr(moe.Session, "close", lambda self: (closed.append(id(self)), close(self)))
    with pytest.raises(TypeError):
        model.generate(PROMPT, colour=1)
    assert closed
