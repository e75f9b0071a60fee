# SPDX-License-Identifier: MIT
"""Arguments that Python must refuse, because C would cut them short or wrap them."""

import moe
import numpy as np
import pytest
from conftest import PROMPT, ROOT, STORIES


def test_a_path_with_a_zero_character_is_refused(tmp_path):
    script = ROOT / "tests/data/chat/script"
    with pytest.raises(moe.ArgumentError, match="source: a path with a zero character"):
        moe.Model(f"{STORIES}\0junk")
    with pytest.raises(moe.ArgumentError, match="destination: a path"):
        moe.convert(script, f"{tmp_path}/m.moe\0.bak")
    for name in ("statistics", "save_statistics"):
        with pytest.raises(moe.ArgumentError, match=f"{name}: a path"):
            moe.convert(script, tmp_path / "m.moe", calibration="a", **{name: f"{tmp_path}/s\0"})
    with pytest.raises(moe.ArgumentError, match="path: a path"):
        moe.save_synthetic("tiny", f"{tmp_path}/m.moe\0.bak")
    with pytest.raises(moe.ArgumentError, match="half a character"):
        moe.save_synthetic("tiny", f"{tmp_path}/\ud800")
    assert list(tmp_path.iterdir()) == []


def test_a_session_in_a_path_with_a_zero_character(session, tmp_path):
    for use in (session.save, session.load):
        with pytest.raises(moe.ArgumentError, match="a path with a zero character"):
            use(f"{tmp_path}/s\0")


@pytest.mark.parametrize("name, value", [
    ("max_tokens", 2**32), ("max_tokens", np.int64(2**32)), ("seed", -1), ("seed", np.int64(-1)),
    ("top_k", np.int64(2**32 + 1)), ("repetition_window", -2**31 - 1)])
def test_numbers_that_do_not_fit_are_refused(session, name, value):
    with pytest.raises(moe.RangeError, match=f"{name}: {value} does not fit"):
        session.generate(PROMPT, **{name: value}).text()
    session.eval([5])


def test_numbers_of_numpy(model, session):
    assert len(session.generate(PROMPT, max_tokens=np.int64(3), seed=np.uint64(2**64 - 1)).tokens()) == 3
    with pytest.raises(moe.RangeError, match="context: 4294967312"):
        model.session(context=np.int64(2**32 + 16))
    for options in ({"memory_bytes": np.int64(-1)}, {"memory": np.int64(-1)}):
        with pytest.raises(moe.RangeError, match="memory_bytes: -1"):
            moe.Model(STORIES, **options)
    with pytest.raises(TypeError):
        model.session(context=5.0)


@pytest.mark.parametrize("value", [-1, 65, 2**64])
def test_candidates_of_a_sample(session, value):
    session.eval([5])
    with pytest.raises(moe.RangeError, match=f"logprobs: expected 0 to 64, found {value}"):
        session.sample(logprobs=value)
    with pytest.raises(moe.RangeError, match=f"logprobs: expected 0 to 64, found {value}"):
        session.generate(PROMPT, logprobs=value).text()


@pytest.mark.parametrize("text", [5, [72, 105], None, np.array([72, 105])])
def test_what_is_no_text_is_not_encoded(model, text):
    with pytest.raises(TypeError, match="text: expected a str or bytes, found"):
        model.encode(text)


def test_bytes_are_encoded(model):
    for text in (b"Hi", bytearray(b"Hi"), memoryview(b"Hi")):
        assert model.encode(text) == model.encode("Hi")


@pytest.mark.parametrize("text", ["a\0", "\ud800"])
def test_texts_that_c_cannot_take(model, session, text):
    with pytest.raises(moe.ArgumentError):
        session.generate(PROMPT, stop=text).text()
    with pytest.raises(moe.ArgumentError):
        model.chat(template="plain", system=text)
    with pytest.raises(moe.ArgumentError):
        session.set_router(text)
    session.eval([5])


def test_thinking(model):
    with pytest.raises(moe.ArgumentError, match="thinking: expected True, False or None, found 'on'"):
        model.chat(template="plain", thinking="on")


def test_names_that_are_not_known(model, tmp_path):
    with pytest.raises(moe.ArgumentError, match="kv: expected one of"):
        model.session(kv="int9")
    with pytest.raises(moe.ArgumentError, match="io: expected one of"):
        moe.Model(STORIES, io="fast")
    with pytest.raises(moe.ArgumentError, match="split_by: expected"):
        moe.convert(tmp_path, tmp_path / "m.moe", split_by="name")
    with pytest.raises(moe.RangeError, match="memory: expected a size"):
        moe.Model(STORIES, memory="much")


@pytest.fixture
def chat(model):
    with model.chat(template="plain") as c:
        c.messages = [moe.Message("user", "a"), moe.Message("assistant", "b")]
        yield c


@pytest.mark.parametrize("wrong", [moe.Message("\0", "d"), moe.Message("user", "\ud800"), moe.Message("r" * 10**6, "d"),
                                   moe.Message("", "d")])
def test_messages_are_set_all_or_not_at_all(chat, wrong):
    before = chat.messages
    with pytest.raises((moe.ArgumentError, moe.RangeError)):
        chat.messages = [moe.Message("user", "c"), wrong]
    assert chat.messages == before
    with pytest.raises(moe.ArgumentError):
        chat.reply("\ud800").text()
    assert chat.messages == before


@pytest.mark.parametrize("n", [3, 2**64, 2**64 + 1, np.uint64(2**64 - 1)])
def test_messages_are_not_truncated_by_a_number_that_wraps(chat, n):
    with pytest.raises(moe.RangeError, match=f"n_messages: .*{n}"):
        chat.truncate(n)
    assert len(chat.messages) == 2
