# SPDX-License-Identifier: MIT
"""Texts that satisfy a schema, a grammar or a regular expression."""

import json
import re

import pytest
from conftest import PROMPT

import moe

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "é": {"enum": [1, "x"]}},
          "required": ["name", "é"], "additionalProperties": False}


def test_schemas(model):
    for seed in range(4):
        how = {"json_schema": SCHEMA, "max_tokens": 200, "temperature": 1.5, "seed": seed}
        generation = model.session().generate(PROMPT, **how)
        text = generation.text()
        assert generation.result.finish == moe.Finish.EOS
        made = json.loads(text)
        assert set(made) == {"name", "é"} and len(made["name"]) <= 9 and made["é"] in (1, "x")
        assert model.session().generate(PROMPT, max_draft=8, **how).text() == text
        assert model.session().generate(PROMPT, **{**how, "json_schema": json.dumps(SCHEMA)}).text() == text


def test_a_grammar_is_for_many_texts(model):
    with moe.Grammar(model, gbnf='root ::= " " ("yes" | "no")') as grammar:
        texts = [model.session().generate(PROMPT, grammar=grammar, temperature=1, seed=i).text() for i in range(6)]
    assert set(texts) <= {" yes", " no"}
    with pytest.raises(moe.StateError, match="closed"):
        model.session().generate(PROMPT, grammar=grammar).text()


def test_expressions_and_processors(model):
    assert re.fullmatch("[a-c]{3}", model.session().generate(PROMPT, regex="[a-c]{3}").text())

    def ban_all(_tokens, logits):
        logits[:] = -float("inf")
        logits[0] = 0

    with pytest.raises(moe.RangeError, match="every token that may follow is banned"):
        model.session().generate(PROMPT, regex="abc", logits_processor=ban_all).text()


def test_biases_that_ban_what_may_follow(model):
    begins = [i for i in range(model.info.vocab_size) if (piece := model.decode([i])) and "abc".startswith(piece)]
    assert begins
    with pytest.raises(moe.RangeError, match="biases ban every token"):
        model.session().generate(PROMPT, regex="abc", bias=dict.fromkeys(begins, -float("inf"))).text()


def test_refusals(model):
    with pytest.raises(moe.UnsupportedError, match="#/properties/a/unevaluatedItems"):
        moe.Grammar(model, json_schema={"properties": {"a": {"unevaluatedItems": {}}}})
    with pytest.raises(moe.FormatError, match="byte 1"):
        moe.Grammar(model, regex="a)")
    with pytest.raises(moe.RangeError, match="no text satisfies it"):
        moe.Grammar(model, json_schema=False)
    with pytest.raises(moe.ArgumentError, match="one of"):
        moe.Grammar(model)
    with pytest.raises(moe.ArgumentError, match="one of"):
        model.session().generate(PROMPT, regex="a", json_schema=True)
