# SPDX-License-Identifier: MIT
"""Chats. The model of tests/data/chat/script always generates the thinking text "ab" and the answer "Yes."."""

import datetime
import gc
import json
import shutil

import pytest
from conftest import PROMPT, ROOT

import moe


@pytest.fixture(scope="module")
def talker(environment, tmp_path_factory):
    path = tmp_path_factory.mktemp("chat") / "script.moe"
    moe.convert(ROOT / "tests/data/chat/script", path, weights="f32")
    with moe.Model(path, environment) as model:
        yield model


@pytest.fixture
def chat(talker):
    with talker.chat() as c:
        yield c


def test_turns(chat):
    first = chat.reply("Hello")
    pieces = list(first)
    assert "".join(p.text for p in pieces if p.thinking) == "ab"
    assert "".join(p.text for p in pieces if not p.thinking) == "Yes."
    assert [p.token >= 0 for p in pieces] == [True] * 9
    result = first.result
    assert isinstance(result, moe.ChatResult) and result.finish == moe.Finish.EOS
    assert (result.n_reused, result.n_generated, result.n_thinking) == (0, 9, 4)
    assert chat.messages == [moe.Message("user", "Hello"), moe.Message("assistant", "Yes.", "ab")]
    second = chat.reply("Sure?", logprobs=2)
    assert second.text() == "Yes."
    assert second.result.n_reused == result.n_prompt
    assert len(chat.messages) == 4
    assert chat.session.position == second.result.n_prompt + 9


def test_makes_room(chat):
    for text in ("First", "Second", "Third"):
        chat.reply(text).text()
    n = len(chat.tokens(begin_reply=True))
    assert chat.remove_oldest(n) == 0
    assert chat.remove_oldest(n - 1) == 2
    assert [m.content for m in chat.messages] == ["Second", "Yes.", "Third", "Yes."]
    with pytest.raises(moe.TooLongError):
        chat.remove_oldest(3)
    with pytest.raises(moe.RangeError):
        chat.remove_oldest(-1)
    assert len(chat.messages) == 4
    assert chat.reply("Last").text() == "Yes."


def test_the_models_sampling(talker, environment, tmp_path):
    assert talker.sampling == moe.ModelSampling(False, dict(
        temperature=0.8, top_k=0, top_p=0.95, min_p=0.05, repetition_penalty=1.0, repetition_window=64))
    shutil.copytree(ROOT / "tests/data/chat/script", tmp_path / "c")
    (tmp_path / "c/generation_config.json").write_text('{"temperature": 0.6, "top_k": 20}')
    moe.convert(tmp_path / "c", tmp_path / "c.moe", weights="f32")
    with moe.Model(tmp_path / "c.moe", environment) as model, model.chat() as chat:
        assert model.sampling.in_file
        assert model.sampling.arguments["temperature"] == 0.6
        assert model.sampling.arguments["top_k"] == 20
        assert chat.reply("Hello", seed=1, **model.sampling.arguments).text() == "Yes."
        moe.Sampling(seed=1, **model.sampling.arguments)


def test_render_and_tokens(chat, talker):
    chat.system = "Be brief."
    assert chat.system == "Be brief."
    chat.add("user", "Grüße <|im_end|> 🦊")
    text = chat.render(begin_reply=True)
    assert text == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
                    "Grüße <|im_end|> 🦊<|im_end|>\n<|im_start|>assistant\n")
    end = talker.encode("<|im_end|>", parse_special=True)[0]
    ids = chat.tokens(begin_reply=True)
    assert ids.count(end) == 2  # the one in the message is plain text
    assert talker.decode(ids) == text
    assert text.startswith(chat.render()) and ids[: len(chat.tokens())] == chat.tokens()
    assert chat.reply().text() == "Yes."
    chat.system = None
    chat.clear()
    assert chat.messages == [] and chat.session.position > 0


def test_messages_can_be_set(chat):
    chat.messages = [{"role": "user", "content": "a"}, moe.Message("assistant", "b")]
    chat.add("user", "c")
    assert [m.content for m in chat.messages] == ["a", "b", "c"]
    chat.truncate(1)
    assert chat.messages == [moe.Message("user", "a")]
    with pytest.raises(moe.ArgumentError):
        chat.messages = [moe.Message("", "a")]
    with pytest.raises(moe.RangeError):
        chat.truncate(2)
    with pytest.raises(moe.ArgumentError):
        chat.truncate(-1)
    assert len(chat.messages) == 1


def test_thinking(talker):
    quiet = talker.chat(thinking=False)
    reply = quiet.reply("Hello")
    assert [p.thinking for p in reply] == [False] * 4
    assert reply.result.n_thinking == 0 and quiet.messages[-1].thinking == ""
    assert talker.chat(thinking=True).reply("Hello").text() == "Yes."
    with pytest.raises(moe.UnsupportedError, match="enable_thinking"):
        talker.chat(template="chatml", thinking=True)


def test_templates(model, talker):
    assert "raise_exception" in talker.chat_template
    assert model.chat_template is None
    assert moe.chat_template_names() == ("chatml", "llama3", "mistral", "plain")
    with pytest.raises(moe.NotFoundError, match="no chat template; one can be given: chatml,"):
        model.chat()
    with pytest.raises(moe.ArgumentError, match="chatlm"):
        model.chat(template="chatlm")
    chat = model.chat(template="{{ name }} {{ n + 1 }} {{ on is true }} {{ no is none }} "
                               "{{ strftime_now('%d.%m.%Y') }}",
                      variables={"name": "Ada", "n": 3, "on": True, "no": None},
                      date=datetime.date(2025, 3, 9))
    assert chat.render() == "Ada 4 True True 09.03.2025"
    plain = model.chat(template="plain")
    assert plain.reply(PROMPT, max_tokens=8).text() \
        == model.session().generate(PROMPT, max_tokens=8).text()


def test_failures_take_the_question_back(talker):
    chat = talker.chat(context=40)
    chat.reply("Hello").text()
    with pytest.raises(moe.TooLongError, match="context holds 40"):
        chat.reply("A question that is too long.").text()
    assert len(chat.messages) == 2
    picky = talker.chat(template="{% if messages | length > 1 %}{{ raise_exception('one only') }}"
                                 "{% endif %}{{ messages[0].content }}")
    picky.reply("Hello").text()
    with pytest.raises(moe.TextError, match="one only"):
        picky.reply("Again").text()
    assert len(picky.messages) == 2
    with pytest.raises(moe.RangeError):
        talker.chat().reply("x", temperature=-1.0).text()


def test_a_reply_left_early_is_kept_as_far_as_it_came(chat):
    with chat.reply("Hello") as reply:
        for piece in reply:
            if piece.text == "e":
                break
        with pytest.raises(moe.StateError):
            chat.add("user", "x")
    assert chat.messages[-1] == moe.Message("assistant", "Ye", "ab")
    assert reply.result.finish == moe.Finish.CALLBACK
    never = chat.reply("Never asked")
    never.close()
    assert len(chat.messages) == 2


def test_lifetimes(talker):
    chat = talker.chat()
    reply = chat.reply("Hello")
    next(reply)
    chat.close()
    assert chat.closed and reply.result is not None
    with pytest.raises(moe.StateError):
        chat.messages  # noqa: B018
    session = talker.session()
    one, two = moe.Chat(session), moe.Chat(session, thinking=False)
    assert one.reply("Hello").text() == two.reply("Hello").text() == "Yes."
    del session
    gc.collect()
    assert one.reply("Hello").text() == "Yes."
    unfinished = one.reply("More")
    next(unfinished)
    one.session.close()
    assert unfinished.result.finish == moe.Finish.CALLBACK
    assert one.reply("More").text() == "Yes."
    one.cancel()


def test_a_chat_goes_on_in_another_session(model, talker):
    session = talker.session(context=64)
    chat = moe.Chat(session)
    assert chat.reply("Hello").text() == "Yes."
    before, larger = chat.messages, talker.session(context=256)
    with pytest.raises(moe.ArgumentError, match="another model"):
        chat.session = model.session()
    assert chat.session is session
    reply = chat.reply("More")
    next(reply)
    with pytest.raises(moe.StateError):
        chat.session = larger
    reply.close()
    chat.truncate(2)
    chat.session = larger
    session.close()
    assert chat.session is larger and chat.messages == before
    reply = chat.reply("Sure?")
    assert reply.text() == "Yes." and reply.result.n_reused == 0
    assert larger.position == reply.result.n_prompt + 9
    chat.cancel()


@pytest.mark.parametrize("bos", [None, "<|endoftext|>"])
def test_plain_begins_as_the_tokenizer_does(environment, tmp_path, bos):
    for file in (ROOT / "tests/data/chat/script").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    begin = tokenizer["added_tokens"][0]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": begin["content"]}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {begin["content"]: {"ids": [begin["id"]]}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": bos}))
    moe.convert(tmp_path, tmp_path / "m.moe", weights="f32")
    with moe.Model(tmp_path / "m.moe", environment) as model:
        chat = model.chat(template="plain")
        chat.add("user", "Hello")
        assert chat.tokens(begin_reply=True) == model.encode("Hello")
        assert chat.tokens()[0] == begin["id"]


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def test_tools(environment, tmp_path, chat):
    path = tmp_path / "tools.moe"
    moe.convert(ROOT / "tests/data/chat/tools", path, weights="f32")
    with moe.Model(path, environment) as model, model.chat() as c:
        assert c.tool_format == "hermes"
        c.set_tools([WEATHER])
        reply = c.reply("Weather?")
        pieces = list(reply)
        assert "".join(p.text for p in pieces) == "Ok!"
        calls = [p.tool_call for p in pieces if p.tool_call]
        assert [(x["name"], x["arguments"]) for x in calls] == [("weather", {"city": "Zürich", "days": 2}), ("clock", {})]
        assert reply.result.n_tool_calls == 2
        kept = c.messages[-1]
        assert kept.content == "Ok!" and [x["id"] for x in kept.members["tool_calls"]] == [x["id"] for x in calls]
        for x in calls:
            c.add_message({"role": "tool", "tool_call_id": x["id"], "content": "18"})
        assert c.reply().text() == "Yes."
        before = c.messages
        rendered = c.render()
        c.messages = before
        assert c.messages == before and c.render() == rendered
        with pytest.raises(moe.ArgumentError, match=r"tool_calls\[0\]"):
            c.add_message({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]})
        with pytest.raises(moe.UnsupportedError, match=r"tools\[0\].function.parameters: JSON schema: #/unevaluatedItems"):
            c.set_tools([{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"unevaluatedItems": True}}}])
        schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"],
                  "additionalProperties": False}
        c.set_tools([WEATHER, {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}])
        c.set_tool_choice("one", "f")
        pieces = list(c.reply("Weather?"))
        (made,) = [p.tool_call for p in pieces if p.tool_call]
        assert made["name"] == "f" and made["arguments"] in ({"yes": True}, {"yes": False})
        assert not "".join(p.text for p in pieces if not p.tool_call)
        with pytest.raises(moe.ArgumentError, match="none with the name 'g'"):
            c.set_tool_choice("one", "g")
        with pytest.raises(moe.ArgumentError, match="zero character"):
            c.set_tool_choice("one", "f\0g")
        with pytest.raises(ValueError, match="expected auto, required or one"):
            c.set_tool_choice("some")
        c.set_tool_choice("auto")
        c.messages = before
        c.set_tools([])
        assert c.messages == before
    assert chat.tool_format is None
    with pytest.raises(moe.UnsupportedError, match="has no tools"):
        chat.set_tools([WEATHER])
