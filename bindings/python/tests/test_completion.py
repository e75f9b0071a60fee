"""Completions in the shape of OpenAI's API, and streams for asyncio. The model of tests/data/chat/script thinks "ab"
and answers "Yes." to everything."""

import asyncio
import json
import threading

import pytest
from conftest import PROMPT, ROOT

import moe

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
    assert [t["token"] for t in content][-1] == choice["message"]["content"] == "Y"  # "</think>" is in front
    for token in content:
        assert token["bytes"] == list(token["token"].encode()) and len(token["top_logprobs"]) == 2
        assert token["top_logprobs"][0]["logprob"] == token["logprob"]  # greedy


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
        threading.Timer(0.2, go_on.set).start()  # the loop waits for the call to end
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())
    assert session.generate("x", max_tokens=1).tokens() is not None  # no longer in use
