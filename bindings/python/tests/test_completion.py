# SPDX-License-Identifier: MIT
"""Completions in the format of OpenAI's API, and streams for asyncio. The model of tests/data/chat/script always
generates the thinking text "ab" and the answer "Yes."."""

import asyncio
import json
import threading

import pytest
from conftest import PROMPT, ROOT

import moe
from moe.completion import _broken_bytes, _logprob

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]


@pytest.fixture(scope="module")
def talker(environment, tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "script.moe"
    moe.convert(ROOT / "tests/data/chat/script", path, weights="f32")
    with moe.Model(path, environment) as model:
        yield model


def test_completion(talker):
    c = talker.create_chat_completion(QUESTION)
    assert json.loads(json.dumps(c)) == c
    assert c["object"] == "chat.completion" and c["id"].startswith("chatcmpl-") and c["created"] > 1e9
    assert c["model"] == talker.info.name
    (choice,) = c["choices"]
    assert choice == {"index": 0, "finish_reason": "stop", "logprobs": None, "message": {
        "role": "assistant", "content": "Yes.", "reasoning_content": "ab"}}
    usage = c["usage"]
    assert usage["completion_tokens"] == 9
    assert usage["total_tokens"] == usage["prompt_tokens"] + 9


def test_messages_reach_the_template(talker):
    with talker.chat() as chat:
        chat.create_chat_completion(QUESTION)
        assert chat.messages == [moe.Message("system", "Be brief."), moe.Message("user", "Hello?"),
                                 moe.Message("assistant", "Yes.", "ab")]
        parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo?"}]}]
        chat.create_chat_completion(parts)
        assert chat.messages[0] == moe.Message("user", "Hello?")
        with pytest.raises(moe.ArgumentError, match="found 'image_url'"):
            chat.create_chat_completion([{"role": "user", "content": [{"type": "image_url"}]}])
        with pytest.raises(moe.ArgumentError, match="logprobs=True"):
            chat.create_chat_completion(QUESTION, top_logprobs=2)


@pytest.mark.parametrize("messages, fault", [
    ([{"content": "a"}], r"messages\[0\]: expected 'role', a string, found none"),
    (["a"], r"messages\[0\]: expected a mapping, found str"),
    ([*QUESTION, {"role": "user"}], r"messages\[2\]: expected 'content', a string, found none"),
    ([{"role": "user", "content": 3}], "expected 'content', a string, found int"),
    ([{"role": "user", "content": "a", "name": "Ada", "tool_call_id": "b"}], "unknown: 'tool_call_id'"),
    ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\]: expected 'text', a string, found none"),
    ([{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}], "unknown: 'x'"),
])
def test_messages_that_are_not_understood(talker, messages, fault):
    with talker.chat() as chat:
        chat.add("user", "a")
        with pytest.raises(moe.ArgumentError, match=fault):
            chat.create_chat_completion(messages)
        assert chat.messages == [moe.Message("user", "a")]


def test_arguments(talker):
    nothing = dict.fromkeys(["stop", "max_tokens", "seed", "temperature", "n", "top_logprobs", "logit_bias", "stream",
                             "logprobs", "context", "thinking", "user"])
    plain = talker.create_chat_completion(QUESTION, **nothing)
    assert plain["choices"] == talker.create_chat_completion(QUESTION)["choices"]
    short = talker.create_chat_completion(QUESTION, max_completion_tokens=6, n=1, model="mine")
    assert (short["usage"]["completion_tokens"], short["model"]) == (6, "mine")
    with talker.chat() as chat:
        chat.add("user", "a")
        for arguments, fault in [({"n": 2}, "n: expected 1, found 2"), ({"tools": [], "user": "a"}, "unknown: 'tools'"),
                                 ({"max_tokens": 1, "max_completion_tokens": 2}, "give one of them")]:
            with pytest.raises(moe.ArgumentError, match=fault):
                chat.create_chat_completion(QUESTION, **arguments)
        assert chat.messages == [moe.Message("user", "a")]
    answer = {"role": "assistant", "content": None, "refusal": None}
    assert talker.create_chat_completion([*QUESTION, answer, QUESTION[1]])


def test_bytes_of_tokens(model):
    tokens = model.encode("a quiet \u4e16", special=False)
    found = [_logprob(model.tokenizer, token, 0.0) for token in tokens]
    assert b"".join(bytes(f["bytes"]) for f in found) == "a quiet \u4e16".encode()
    assert [f["token"] for f in found[:2]] + [found[-1]["token"]] == ["a", " quiet", "\N{REPLACEMENT CHARACTER}"]


def test_a_token_has_the_space_that_it_stands_for(environment, tmp_path):
    moe.convert(ROOT / "tests/data/translation/mbart", tmp_path / "m.moe", weights="f32")
    with moe.Model(tmp_path / "m.moe", environment) as model:
        tokens = model.encode("the cat", special=False)
        assert model.decode(tokens[-1:]) == "cat"
        assert _logprob(model.tokenizer, tokens[-1], 0.0) == {"token": " cat", "logprob": 0.0, "bytes": list(b" cat")}


@pytest.mark.parametrize("piece, text, found", [("<0xE4>", "\ufffd", [0xE4]), ("\ufffd", "\ufffd", None),
                                                ("abc", "\ufffd", None), ("", "\ufffd", None)])
def test_spellings_of_bytes(piece, text, found):
    assert _broken_bytes(piece, text) == found


def test_a_chat_evaluates_only_what_is_new(talker):
    with talker.chat() as chat:
        first = chat.create_chat_completion(QUESTION)["choices"][0]["message"]
        longer = [*QUESTION, first, {"role": "user", "content": "Sure?"}]
        before = chat.session.position
        stream = chat.create_chat_completion(longer, stream=True)
        list(stream)
        assert 0 < stream._reply.result.n_reused <= before


def test_length_and_logprobs(talker):
    c = talker.create_chat_completion(QUESTION, max_tokens=6, logprobs=True, top_logprobs=2, thinking=None)
    (choice,) = c["choices"]
    assert choice["finish_reason"] == "length"
    content = choice["logprobs"]["content"]
    assert [t["token"] for t in content][-1] == choice["message"]["content"] == "Y"  # after "</think>"
    for token in content:
        assert token["bytes"] == list(token["token"].encode()) and len(token["top_logprobs"]) == 2
        assert token["top_logprobs"][0]["logprob"] == token["logprob"]  # greedy sampling


def test_bias_has_keys_of_json(talker):
    y = talker.encode("Y", special=False)[0]
    c = talker.create_chat_completion(QUESTION, max_tokens=8, logit_bias={str(y): float("-inf")})
    assert "Y" not in c["choices"][0]["message"]["content"]


def joined(chunks):
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [d.pop("role", None) for d in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    return {key: "".join(d.get(key, "") for d in deltas) for key in ("content", "reasoning_content")}


def test_stream(talker):
    chunks = list(talker.create_chat_completion(QUESTION, stream=True))
    assert joined(chunks) == {"content": "Yes.", "reasoning_content": "ab"}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]


def test_a_stream_that_is_left_gives_back_its_session(talker):
    with talker.create_chat_completion(QUESTION, stream=True) as stream:
        next(stream)
        chat = stream._reply._session
    assert chat.closed and chat.session.closed and list(stream) == []


def test_a_stream_whose_reply_fails_gives_back_its_session(talker):
    failures = iter([KeyError("mine")])

    def fail_once():
        for failure in failures:
            raise failure

    stream = talker.create_chat_completion(QUESTION, stream=True)
    chat = stream._reply._session
    stream._reply.close = fail_once
    with pytest.raises(KeyError, match="mine"):
        stream.close()
    assert chat.closed and chat.session.closed


def test_asyncio(model, talker):
    async def text():
        return "".join([piece.text async for piece in model.session().generate(PROMPT, max_tokens=8)])

    async def chunks():
        return [chunk async for chunk in talker.create_chat_completion(QUESTION, stream=True)]

    async def both():
        return await asyncio.gather(text(), chunks())

    generated, streamed = asyncio.run(both())
    assert generated == model.session().generate(PROMPT, max_tokens=8).text()
    assert joined(streamed)["content"] == "Yes."


def test_a_cancelled_task_ends_the_generation(model):
    session = model.session()
    waiting, go_on = threading.Event(), threading.Event()

    def slow(_tokens, _logits):
        waiting.set()
        go_on.wait(30)

    async def use():
        task = asyncio.create_task(anext(aiter(session.generate(PROMPT, logits_processor=slow))))
        await asyncio.to_thread(waiting.wait, 30)
        task.cancel()
        await asyncio.sleep(0.2)  # the event loop runs while the call ends
        assert not task.done()
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())
    assert session.generate("x", max_tokens=1).tokens() is not None  # the session is free


def test_a_cancelled_task_whose_callback_needs_the_loop(model):
    session = model.session()
    waiting, go_on = threading.Event(), asyncio.Event()

    async def use():
        loop = asyncio.get_running_loop()

        def ask(_tokens, _logits):
            waiting.set()
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
            raise KeyError("mine")

        task = asyncio.create_task(anext(aiter(session.generate(PROMPT, logits_processor=ask))))
        await asyncio.to_thread(waiting.wait, 30)
        task.cancel()
        loop.call_later(0.1, go_on.set)
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value

    asyncio.run(use())
    assert session.generate("x", max_tokens=1).tokens() is not None
