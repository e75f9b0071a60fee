# SPDX-License-Identifier: MIT
"""Encoder-decoders: translations equal those of transformers."""

import json

import moe
import numpy as np
import pytest
from conftest import ROOT

FOLDER = ROOT / "tests/data/translation/mbart"


@pytest.fixture(scope="module")
def translator(environment, tmp_path_factory):
    path = tmp_path_factory.mktemp("translator") / "mbart.moe"
    moe.convert(FOLDER, path, weights="f32")
    with moe.Model(path, environment) as m:
        yield m


def test_info(translator):
    info = translator.info
    assert (info.is_encoder_decoder, info.n_encoder_layers, info.source_length) == (1, 2, 48)
    assert "encoder-decoder" in repr(translator)


def test_translate_is_that_of_transformers(translator):
    golden = json.loads((FOLDER / "golden.json").read_text())
    with translator.session(kv=moe.KvType.F32) as session:
        for case in golden["cases"]:
            for stop in ("step", "bound"):
                found = session.translate(case["source"], n_best=5, stop=stop, min_tokens=0,
                                          max_tokens=golden["max_tokens"])
                assert [t.tokens for t in found] == case[stop]
                assert np.allclose([t.score for t in found], case[stop + "_scores"], atol=1e-4)


def test_translate_takes_texts_and_says_how_far_it_is(translator):
    steps = []
    with translator.session(max_beam=2) as session:
        found = session.translate("the cat", max_tokens=6, prefix=" dog",
                                  progress=lambda done, total: steps.append((done, total)))
        assert found[0].text.strip().startswith("dog")
        assert steps[0] == (0, 6)
        with_end = session.translate("the cat")[0]
        assert translator.decode(with_end.tokens).endswith("</s>") and "</s>" not in with_end.text
        with pytest.raises(moe.CancelledError):
            session.translate("the cat", progress=lambda done, total: False)
        with pytest.raises(moe.RangeError, match="max_beam"):
            session.translate("the cat", beam=3)
        with pytest.raises(moe.RangeError, match="length_penalty"):
            session.translate("the cat", length_penalty=float("nan"))
        with pytest.raises(moe.ArgumentError, match="stop"):
            session.translate("the cat", stop="soon")


def test_a_source_makes_it_a_decoder(translator):
    start = translator.info.start_token
    with translator.session() as session:
        with pytest.raises(moe.StateError, match="source"):
            session.eval([start])
        hidden = session.read_source("the cat")
        assert hidden.shape == (len(translator.encode("the cat")), translator.info.d_model)
        rows = session.eval_all([start, 4, 9])
        session.rewind(0)
        z = rows[0].astype(float)
        assert np.isclose(session.score([start, 4, 9])[0], z[4] - np.logaddexp.reduce(z), atol=1e-5)
        with pytest.raises(moe.UnsupportedError, match="encoder-decoder"):
            session.save()


def test_a_decoder_translates_nothing(model):
    with model.session() as session, pytest.raises(moe.UnsupportedError, match="a decoder"):
        session.translate("the cat")
    with pytest.raises(moe.UnsupportedError, match="max_beam"):
        model.session(max_beam=2)
