# SPDX-License-Identifier: MIT
"""Handles cannot be copied, and can be closed in any order."""

import copy
import pickle

import numpy as np
import pytest
from conftest import PROMPT, STORIES

import moe


@pytest.fixture
def handles(environment):
    experts = [moe.Expert(up=np.ones((8, 4), np.float32), down=np.ones((4, 8), np.float32))] * 2
    model = moe.Model(STORIES, environment)
    chat = model.chat(template="plain")
    return {"environment": moe.Environment(threads=1), "model": model, "session": model.session(),
            "chat": chat, "reply": chat.reply("Once"), "tokenizer": model.tokenizer,
            "generation": model.session().generate(PROMPT),
            "layer": moe.MoeLayer(experts, np.ones((2, 4), np.float32), environment=environment)}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(handles, copied):
    for name, handle in handles.items():
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(handle)
        assert name in ("reply", "generation", "tokenizer") or not handle.closed
    for native in (handles["model"]._native, handles["session"]._native):
        with pytest.raises(TypeError):
            copied(native)
    assert handles["session"].eval([1]) is not None  # nothing was freed
    handles["model"].close()
    assert len(list(handles["generation"])) > 0


def test_closing_in_any_order(handles):
    next(handles["reply"])
    for name in ("environment", "model", "chat", "layer"):
        handles[name].close()
    for use in (lambda: handles["model"].session(), lambda: handles["model"].info,
                lambda: handles["model"].encode("a"), lambda: handles["model"].tokenizer,
                lambda: handles["environment"].info, lambda: handles["chat"].messages,
                lambda: handles["chat"].reply("x").text(), lambda: handles["chat"].cancel(),
                lambda: handles["layer"](np.ones((1, 4), np.float32)),
                lambda: moe.Model(STORIES, handles["environment"]),
                lambda: moe.Chat(closed_session())):
        with pytest.raises(moe.StateError, match="is closed"):
            use()
    assert list(handles["reply"]) == []
    with pytest.raises(moe.StateError, match="model is closed"):
        handles["tokenizer"].encode("a")
    assert handles["session"].generate([5], max_tokens=2).tokens()  # the session keeps the model
    handles["session"].close()
    with pytest.raises(moe.StateError, match="session is closed"):
        next(handles["session"].generate([5]))


def closed_session():
    with moe.Model(STORIES).session() as session:
        return session
