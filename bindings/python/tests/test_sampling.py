# SPDX-License-Identifier: MIT
"""The fields of Sampling, which three calls take by name."""

import dataclasses

import moe
import moe.chat
import moe.model
import moe.session
import pytest
from conftest import PROMPT

EVERY = {"temperature": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.25, "repetition_penalty": 1.5,
         "repetition_window": 9, "seed": 11, "bias": {5: 2.0}}


def test_the_arguments_are_the_fields():
    fields = {f.name: f.type for f in dataclasses.fields(moe.Sampling)}
    assert {name: kind.__forward_arg__ for name, kind in moe.SamplingArguments.__annotations__.items()} == fields
    assert set(EVERY) == set(fields)


def calls(model, session):
    return ((moe.session, lambda **given: session.generate(PROMPT, **given)),
            (moe.chat, lambda **given: moe.Chat(session, template="plain").reply("a", **given)),
            (moe.model, lambda **given: model.batch([PROMPT], **given)))


def test_each_call_hands_them_on(model, session, monkeypatch):
    for module, call in calls(model, session):
        seen, request = [], module.Request
        monkeypatch.setattr(module, "Request",
                            lambda *given, seen=seen, request=request, **more: seen.append(given[1]) or request(*given, **more))
        call(**EVERY)
        call()
        assert seen == [moe.Sampling(**EVERY), moe.Sampling()]


def test_an_unknown_one_is_refused(model, session):
    for _, call in calls(model, session):
        with pytest.raises(TypeError, match="tempature"):
            call(tempature=1.0)
    assert session.position == 0


def test_the_openai_calls_know_them(model):
    plain = model.create_completion("Once", max_tokens=3, top_k=1, min_p=0.5)
    assert plain["choices"][0]["text"]
    with pytest.raises(moe.ArgumentError, match="unknown: 'sampling'"):
        model.create_completion("Once", sampling=1)
