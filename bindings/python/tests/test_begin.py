# SPDX-License-Identifier: MIT
"""The special tokens at the start of a sequence: those that the model file defines, added once."""

import json

import numpy as np
import pytest
from conftest import ROOT

import moe

TEXT = "Hello. Who is there? Nobody at all."
SCRIPT = ROOT / "tests/data/chat/script"


@pytest.fixture(params=["nothing", "post_processor", "twice"])
def begun(request, environment, tmp_path):
    """A model, and the special tokens that its tokenizer adds in front: none, BOS, or BOS and one more."""
    for file in SCRIPT.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    n = {"nothing": 0, "post_processor": 1, "twice": 2}[request.param]
    begin = tokenizer["added_tokens"][:n]
    if begin:
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "pair": [],
            "single": [*({"SpecialToken": {"id": t["content"]}} for t in begin),
                       {"Sequence": {"id": "A"}}],
            "special_tokens": {t["content"]: {"ids": [t["id"]]} for t in begin}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    # The opposite of tokenizer.json, which takes precedence, as in transformers.
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": not begin}))
    moe.convert(tmp_path, tmp_path / "m.moe", weights="f32")
    with moe.Model(tmp_path / "m.moe", environment) as model:
        yield model, [t["id"] for t in begin]


def nll(model, window, first):
    rows = model.session().eval_all(window).astype(np.float64)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return [-rows[i - 1, window[i]] for i in range(first, len(window))]


def test_encode_and_perplexity(begun):
    model, begin = begun
    text = model.encode(TEXT, special=False)
    assert model.encode(TEXT) == begin + text
    context = 8
    room = context - len(begin)
    expected = []
    for at in range(0, len(text), room):
        expected += nll(model, begin + text[at : at + room], max(1, len(begin)))
    found = model.session(context=context).perplexity(TEXT)
    assert found.n_scored == len(expected)
    assert found.mean_nll == pytest.approx(np.mean(expected), rel=1e-4)


def test_only_a_text_that_begins(begun):
    model, begin = begun
    session = model.session()
    session.generate("Hello", max_tokens=1, ignore_eos=True).text()
    assert session.position == len(model.encode("Hello")) + 1
    before = session.position
    session.generate(" there", max_tokens=1, ignore_eos=True).text()
    assert session.position == before + len(model.encode(" there", special=False)) + 1
