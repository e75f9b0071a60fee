# SPDX-License-Identifier: MIT
"""Encoders: logits, filled masks, vectors of texts; and hidden states of decoders."""

import json
import shutil

import moe
import numpy as np
import pytest
from conftest import ROOT

FOLDER = ROOT / "tests/data/encoders"


@pytest.fixture(scope="module")
def encoder(environment, tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder") / "xlmr.moe"
    moe.convert(FOLDER / "xlmr_maskedlm", path, weights="f32")
    with moe.Model(path, environment) as m:
        yield m


def test_info(encoder):
    info = encoder.info
    assert (info.is_encoder, info.head, info.n_outputs) == (1, "tokens", info.vocab_size)
    assert encoder.tokenizer.piece(info.mask_token) == "<mask>"


def test_encode(encoder):
    ids = json.loads((FOLDER / "xlmr_maskedlm/golden.json").read_text())["cases"][0]["ids"]
    with encoder.session() as session:
        all_of_it = session.encode(ids, pooling="mean", outputs=True)
        assert all_of_it.hidden.shape == (len(ids), 24)
        assert np.allclose(all_of_it.hidden.mean(0), all_of_it.pooled, atol=1e-6)
        some = session.encode(ids, hidden=False, outputs=True, rows=[1, 3])
        assert some.hidden is None and some.pooled is None
        assert np.array_equal(some.outputs, all_of_it.outputs[[1, 3]])
        assert session.position == 0
        with pytest.raises(moe.TooLongError):
            session.encode([5] * 41)
        with pytest.raises(moe.ArgumentError, match="pooling"):
            session.encode(ids, pooling="median")


def test_fill_and_embed(encoder):
    with encoder.session() as session:
        found = session.fill("a small <mask> and a big <mask>", top=3)
        assert [len(mask) for mask in found] == [3, 3]
        assert found[0][0].logprob >= found[0][1].logprob
        with pytest.raises(moe.ArgumentError, match="<mask>"):
            session.fill("nothing to find")
        for top in (0, -1):
            with pytest.raises(moe.ArgumentError, match="top: expected at least 1, found"):
                session.fill("a <mask>", top=top)
        one, two = session.embed("the cat"), session.embed(["the cat", "a dog"])
        assert two.shape == (2, 24) and np.array_equal(one, two[0])
        for texts, name in (("", "texts"), (["a dog", ""], r"texts\[1\]")):
            with pytest.raises(moe.ArgumentError, match=f"{name}: expected a text, found an empty one"):
                session.embed(texts)
        with pytest.raises(moe.MoeError, match="n_tokens: expected at least 1, found 0"):
            session.encode([])


@pytest.fixture(scope="module")
def sentences(environment, tmp_path_factory):
    path = tmp_path_factory.mktemp("sentences") / "sentences.moe"
    moe.convert(FOLDER / "sentences", path, weights="f32")
    with moe.Model(path, environment) as m:
        yield m


def test_vectors_of_texts(sentences, encoder):
    info = sentences.info
    assert (info.pooling, info.normalized, info.vector_tokens) == ("first", 1, 16)
    assert sentences.prompts == {"document": "", "passage": "", "query": "the dog: "} and info.default_prompt == -1
    assert encoder.info.pooling == "" and encoder.prompts == {}
    cases = json.loads((FOLDER / "sentences/golden.json").read_text())["cases"]
    with sentences.session() as session:
        for case in cases[:2]:
            found = session.embed(case["text"], prompt=case["prompt"])
            assert np.allclose(found, case["vector"], atol=2e-5)
        plain = session.embed(cases[0]["text"], normalize=False)
        assert abs(np.linalg.norm(plain) - 1) > 0.1
        assert np.allclose(plain / np.linalg.norm(plain), session.embed(cases[0]["text"]), atol=1e-6)
        assert np.array_equal(session.embed("a", prompt=""), session.embed("a"))
        with pytest.raises(moe.ArgumentError, match="'passage', 'query'"):
            session.embed("a", prompt="other")
        with pytest.raises(moe.TooLongError, match="at most 16"):
            session.embed("cat " * 20)
        with pytest.raises(moe.TooLongError, match="17 tokens, .*at most 16"):
            session.encode([5] * 17, hidden=False, pooling="default")
        assert session.encode([5] * 17, hidden=False, pooling="mean").pooled is not None


@pytest.fixture(scope="module", params=["bert", "xlmr", "modernbert"])
def reranker(request, environment, tmp_path_factory):
    folder = FOLDER / f"{request.param}_pairs"
    path = tmp_path_factory.mktemp("pairs") / "m.moe"
    moe.convert(folder, path, weights="f32")
    with moe.Model(path, environment) as m:
        yield m, json.loads((folder / "golden.json").read_text())["cases"]


def test_pairs_are_truncated_as_by_tokenizers(reranker):
    model, cases = reranker
    assert any(case["n_cut"] for case in cases)
    for case in cases:
        pair = model.tokenizer.encode_pair(*case["texts"], max_tokens=case["max_tokens"])
        assert (pair.tokens, pair.n_cut) == (case["ids"], case["n_cut"])
        assert pair.second in (0, case["second"]) or not case["second"]
    with pytest.raises(moe.TooLongError, match="leave none for each"):
        model.tokenizer.encode_pair("the cat", "a dog", max_tokens=4)
    n_around = len(model.tokenizer.encode_pair("", "").tokens)
    assert len(model.tokenizer.encode_pair("", "", max_tokens=n_around).tokens) == n_around
    with pytest.raises(moe.TooLongError, match="leave none for each"):
        model.tokenizer.encode_pair("", "", max_tokens=n_around - 1)


def test_rerank(reranker):
    model, _ = reranker
    texts = ["birds", "the big cat", "a dog sat"]
    with model.session() as session:
        scores = session.score_pairs("the cat", texts)
        assert scores.shape == (3, 1)
        found = session.rerank("the cat", texts)
        assert [r.place for r in found] == np.argsort(-scores[:, 0]).tolist()
        assert [r.score for r in found] == sorted(scores[:, 0].tolist(), reverse=True)
        assert session.rerank("the cat", []) == []
        assert session.score_pairs("the cat", ["cat " * 60]).shape == (1, 1)
    with model.session(chunk=12) as session:
        assert session.context == 12
        pair = model.tokenizer.encode_pair("the cat", "cat " * 60, max_tokens=12)
        expected = session.encode(pair.tokens, hidden=False, outputs=True, second=pair.second).outputs
        assert np.array_equal(session.score_pairs("the cat", ["cat " * 60]), expected)
    with model.session() as session:
        with pytest.raises(moe.ArgumentError, match="label: expected 0 to 0, found 1"):
            session.rerank("the cat", texts, label=1)
        pair = model.tokenizer.encode_pair("the cat", "birds")
        with pytest.raises(moe.RangeError, match="second: expected below"):
            session.encode(pair.tokens, outputs=True, second=len(pair.tokens))


def test_a_model_that_reads_no_pairs(encoder, session):
    with pytest.raises(moe.UnsupportedError, match="how two texts are encoded together"):
        encoder.tokenizer.encode_pair("a", "b")
    with encoder.session() as s:
        with pytest.raises(moe.UnsupportedError, match="head of classes, found a head of tokens"):
            s.score_pairs("a", ["b"])
        with pytest.raises(moe.UnsupportedError, match="how two texts are told apart"):
            s.encode([5, 6], second=1)
    with pytest.raises(moe.UnsupportedError, match="found a decoder"):
        session.rerank("a", ["b"])


def test_embeddings_are_those_of_the_session(sentences):
    """In the shape of OpenAI's API, pooled as the model file says."""
    texts = [case["text"] for case in json.loads((FOLDER / "sentences/golden.json").read_text())["cases"][:2]]
    found = sentences.create_embedding(texts)
    with sentences.session() as session:
        for data, vector in zip(found["data"], session.embed(texts), strict=True):
            np.testing.assert_allclose(data["embedding"], vector, atol=1e-6)
        with pytest.raises(moe.ArgumentError, match="normalize: expected True, False or None, found 'yes'"):
            session.encode([5, 6], normalize="yes")
    assert found["usage"]["prompt_tokens"] == sum(len(sentences.encode(text)) for text in texts)
    for too_long in ("cat " * 20, [5] * 17):
        with pytest.raises(moe.TooLongError, match=r"input\[0\]: .*at most 16"):
            sentences.create_embedding(too_long)


def test_embeddings_have_the_models_default_prompt(environment, tmp_path):
    shutil.copytree(FOLDER / "sentences", tmp_path / "source")
    config = tmp_path / "source/config_sentence_transformers.json"
    config.write_text(config.read_text().replace('"default_prompt_name": null', '"default_prompt_name": "query"'))
    moe.convert(tmp_path / "source", tmp_path / "m.moe", weights="f32")
    with moe.Model(tmp_path / "m.moe", environment) as model, model.session() as session:
        found = model.create_embedding("cat")
        np.testing.assert_allclose(found["data"][0]["embedding"], session.embed("cat"), atol=1e-6)
        assert found["usage"]["total_tokens"] == len(model.encode("the dog: cat"))


def test_the_other_kind_of_model(encoder, session):
    with encoder.session() as s, pytest.raises(moe.UnsupportedError, match="encoder"):
        s.eval([5, 6])
    with pytest.raises(moe.UnsupportedError, match="decoder"):
        session.encode([5, 6], outputs=True)


def test_a_decoder_has_hidden_states(model):
    ids = model.encode("The fox was very proud.")
    with model.session() as session:
        found = session.encode(ids, pooling="last")
        assert found.hidden.shape == (len(ids), model.info.d_model) and session.position == 0
        assert np.array_equal(found.pooled, found.hidden[-1])
        mean = session.embed("The fox was very proud.")
        assert np.allclose(mean, found.hidden.mean(0), atol=1e-5)
        session.append(ids[:3])  # the prefix that encode() continues
        assert np.array_equal(session.encode(ids[3:]).hidden, found.hidden[3:])


def test_logits_are_a_linear_map_of_a_decoders_states(model):
    text = (ROOT / "examples/models/stories.heldout.txt").read_text()
    ids = model.encode(text)[:400]  # more tokens than d_model
    with model.session() as session:
        states = session.encode(ids).hidden.astype(np.float64)
        logits = session.eval_all(ids).astype(np.float64)
    head = np.linalg.lstsq(states, logits, rcond=None)[0]
    assert np.abs(states @ head - logits).max() < 1e-4 * np.abs(logits).max()


def test_a_decoder_has_no_masks(session):
    with pytest.raises(moe.UnsupportedError):
        session.fill("the <mask>")
