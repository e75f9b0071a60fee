#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe fill and moe embed, and the messages for a model of the other kind."""

import json
import os
import shutil
import struct

from support import Cli, MODEL, main

ENCODERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/encoders")
TEXT = "the cat sat on the <mask>"


class Encoder(Cli):
    def encoder(self, head="maskedlm"):
        path = self.path(head + ".moe")
        if not os.path.exists(path):
            self.ok("convert", os.path.join(ENCODERS, "xlmr_" + head), path, "--weights", "f32")
        return path

    def test_fill_names_tokens_for_every_mask(self):
        model = self.encoder()
        with open(os.path.join(ENCODERS, "xlmr_maskedlm/golden.json")) as f:
            cases = json.load(f)["cases"]
        for case in cases[:2]:
            j = json.loads(self.ok("fill", model, "-p", case["text"], "--json", "--top", "3").stdout)
            self.assertEqual(j["tokens"], case["ids"])
            self.assertEqual(len(j["masks"]), case["text"].count("<mask>"))
            for mask in j["masks"]:
                p = [c["p"] for c in mask["top"]]
                self.assertEqual(p, sorted(p, reverse=True))
                self.assertEqual(len(p), 3)
        out = self.ok("fill", model, "-p", TEXT, "--top", "2").stdout.splitlines()
        self.assertEqual(out[0], "mask 1")
        self.assertEqual(len(out), 3)

    def test_an_encoder_has_no_cache_to_choose_a_type_for(self):
        for command in ("fill", "embed"):
            self.fails(2, command, "no.moe", "-p", TEXT, "--kv", "int8", contains=["--kv"])

    def test_embed_writes_json_and_numpy(self):
        model = self.encoder("model")
        text = "the cat sat\na dog ran to the house\n"
        j = json.loads(self.ok("embed", model, "-f", "-", text=text).stdout)
        self.assertEqual((j["pooling"], j["d_model"], len(j["embeddings"])), ("mean", 24, 2))
        first = json.loads(self.ok("embed", model, "-f", "-", "--pool", "first", text=text).stdout)
        self.assertNotEqual(first["embeddings"], j["embeddings"])
        self.ok("embed", model, "-f", "-", "-o", self.path("v.npy"), text=text)
        with open(self.path("v.npy"), "rb") as f:
            data = f.read()
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        size = struct.unpack("<H", data[8:10])[0]
        self.assertEqual((10 + size) % 64, 0)
        self.assertIn(b"'shape': (2, 24)", data[10:10 + size])
        values = struct.unpack("<48f", data[10 + size:])
        for a, b in zip(values, j["embeddings"][0] + j["embeddings"][1], strict=True):
            self.assertAlmostEqual(a, b, places=6)

    def test_embed_takes_decoders(self):
        text = "the cat sat\nthe cat ran\n"
        found = {pool: json.loads(self.ok("embed", MODEL, "-f", "-", "--pool", pool, text=text).stdout)
                 for pool in ("mean", "first", "last")}
        self.assertEqual(json.loads(self.ok("embed", MODEL, "-f", "-", text=text).stdout), found["mean"])
        for pool, j in found.items():
            self.assertEqual((j["pooling"], j["d_model"], len(j["embeddings"])), (pool, 192, 2))
        first = found["first"]["embeddings"]
        self.assertEqual(first[0], first[1])  # both lines begin with BOS, whose state depends on nothing else
        self.assertNotEqual(found["last"]["embeddings"][0], found["last"]["embeddings"][1])
        self.assertNotEqual(found["mean"], found["last"])
        self.fails(1, "embed", MODEL, "-p", "cat\n" + "cat " * 600, contains=["line 2", "512"])

    def test_the_other_kind_of_model_is_named(self):
        self.fails(1, "fill", MODEL, "-p", TEXT, contains=["decoder", "stories.moe"])
        self.fails(1, "fill", self.encoder("model"), "-p", TEXT, contains=["without a head"])
        self.fails(1, "fill", self.encoder(), "-p", "no mask here", contains=["no mask", "<mask>"])
        for command in ("generate", "eval", "perplexity", "score", "chat", "bench", "trace"):
            text = ["-p", "the cat"] if command not in ("chat", "bench") else []
            text += ["-o", self.path("t.csv")] if command == "trace" else []
            self.fails(1, command, self.encoder(), *text, contains=["encoder", command], text="hello\n")
        long = "cat " * 60
        self.fails(1, "embed", self.encoder("model"), "-p", "cat\n" + long, contains=["line 2", "40"])
        self.fails(1, "fill", self.encoder(), "-p", long + "<mask>", contains=["40"])
        self.fails(2, "embed", self.encoder("model"), "-p", "cat", "--pool", "max", contains=["mean", "first"])

    def sentences(self):
        path = self.path("sentences.moe")
        if not os.path.exists(path):
            self.ok("convert", os.path.join(ENCODERS, "sentences"), path, "--weights", "f32")
        return path

    def embed(self, *arguments):
        return json.loads(self.ok("embed", self.sentences(), *arguments).stdout)

    def assert_close(self, found, expected):
        self.assertEqual(len(found), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), 2e-5)

    def test_vectors_are_those_of_sentence_transformers(self):
        with open(os.path.join(ENCODERS, "sentences/golden.json")) as f:
            cases = json.load(f)["cases"]
        for case in cases:
            j = self.embed("-p", case["text"], "--truncate", "--prompt-name", case["prompt"])
            self.assertEqual((j["pooling"], j["normalized"], j["d_model"]), ("first", True, 24))
            self.assert_close(j["embeddings"][0], case["vector"])
        long = max((case["text"] for case in cases), key=len)
        self.fails(1, "embed", self.sentences(), "-p", long, contains=["line 1", "at most 16", "--truncate"])
        self.fails(2, "embed", self.sentences(), "-p", "a", "--prompt-name", "other",
                   contains=["'other'", "document, passage, query"])

    def test_options_override_what_the_file_says(self):
        plain = self.embed("-p", "a small bird", "--no-normalize")
        self.assertEqual(plain["normalized"], False)
        vector, unit = plain["embeddings"][0], self.embed("-p", "a small bird")["embeddings"][0]
        length = sum(v * v for v in vector) ** 0.5
        self.assertGreater(abs(length - 1), 0.1)
        self.assert_close([v / length for v in vector], unit)
        mean = self.embed("-p", "a small bird", "--pooling", "mean", "--normalize")
        self.assertEqual((mean["pooling"], mean["normalized"]), ("mean", True))
        self.assertNotEqual(mean["embeddings"][0], unit)
        self.fails(2, "embed", self.sentences(), "-p", "a", "--normalize", "--no-normalize", contains=["--normalize"])

    def test_similarity(self):
        texts = ["a small bird", "the cat sat", "a small bird"]
        both = [argument for text in texts for argument in ("-p", text)]
        vectors = self.embed(*both)["embeddings"]
        table = self.embed(*both, "--similarity")["similarity"]
        for i, a in enumerate(vectors):
            self.assert_close(table[i], [sum(x * y for x, y in zip(a, b)) for b in vectors])
        self.assertAlmostEqual(table[0][2], 1, places=5)
        self.assertLess(table[0][1], 0.999)
        out = self.path("table.npy")
        self.ok("embed", self.sentences(), *both, "--similarity", "-o", out)
        with open(out, "rb") as f:
            self.assertIn(b"(3, 3)", f.read(128))
        self.fails(2, "embed", self.sentences(), "-p", "a", "--similarity", contains=["2 to 4096", "found 1"])
        self.fails(2, "embed", self.sentences(), "-p", "a", "-p", "", contains=["the text is empty"])

    def test_a_mean_over_a_decoder_is_warned_of(self):
        self.assertIn("not made for embeddings", self.ok("embed", MODEL, "-p", "a cat").stderr)
        self.assertEqual(self.ok("embed", MODEL, "-p", "a cat", "--pooling", "last").stderr, "")
        self.assertEqual(self.ok("embed", self.sentences(), "-p", "a cat", "--pooling", "mean").stderr, "")

    def test_inspect_says_how_texts_become_vectors(self):
        out = self.ok("inspect", self.sentences()).stdout
        self.assertIn("of the first token, of length 1, texts of at most 16 tokens; prompts document, passage, query", out)
        v = json.loads(self.ok("inspect", self.sentences(), "--json").stdout)["vectors"]
        self.assertEqual(v, {"pooling": "first", "normalized": True, "max_tokens": 16,
                             "prompts": {"document": "", "passage": "", "query": "the dog: "}, "default_prompt": None})

    def reranker(self, name="bert_pairs"):
        path = self.path(name + ".moe")
        if not os.path.exists(path):
            self.ok("convert", os.path.join(ENCODERS, name), path, "--weights", "f32")
        return path

    def test_rerank_scores_are_those_of_transformers(self):
        for name in ("bert_pairs", "xlmr_pairs", "modernbert_pairs"):
            with open(os.path.join(ENCODERS, name, "golden.json")) as f:
                cases = json.load(f)["cases"]
            with open(os.path.join(ENCODERS, name, "golden.safetensors"), "rb") as f:
                header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
                data = f.read()
            whole = [(i, case) for i, case in enumerate(cases) if case["max_tokens"] == 0]
            self.assertEqual(len(whole), 2)
            passages = [case["texts"][1] for _, case in whole]
            expected = [struct.unpack_from("<f", data, header[f"outputs.{i}"]["data_offsets"][0])[0] for i, _ in whole]
            given = [argument for passage in passages for argument in ("-p", passage)]
            done = self.ok("rerank", self.reranker(name), "-q", whole[0][1]["texts"][0], *given, "--json")
            found = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(done.stderr, "")
            self.assertEqual([j["index"] for j in found], sorted((0, 1), key=lambda i: -expected[i]))
            for j in found:
                self.assertAlmostEqual(j["score"], expected[j["index"]], places=4)
                self.assertEqual(j["text"], passages[j["index"]])

    def test_rerank_prints_the_best_first(self):
        text = "birds\nthe big cat\na dog sat\n"
        lines = self.ok("rerank", self.reranker(), "-q", "the cat", "-f", "-", text=text).stdout.splitlines()
        scores = [float(line.split()[0]) for line in lines]
        self.assertEqual(scores, sorted(scores, reverse=True))
        for line in lines:
            number, passage = line.split(maxsplit=2)[1:]
            self.assertEqual(text.splitlines()[int(number) - 1], passage)
        best = self.ok("rerank", self.reranker(), "-q", "the cat", "-f", "-", "--top", "1", text=text).stdout
        self.assertEqual(best.splitlines(), lines[:1])
        long = self.ok("rerank", self.reranker(), "-q", "the cat", "-p", "birds\n" + "cat " * 60)
        self.assertIn("line 2: 25 tokens left out, of the longer text first; query and passage may have 40", long.stderr)

    def test_a_chunk_limits_an_encoders_text(self):
        model = self.reranker()
        long = self.ok("rerank", model, "-q", "the cat", "-p", "birds\n" + "cat " * 60, "--chunk", "12")
        self.assertIn("line 2: 53 tokens left out, of the longer text first; query and passage may have 12", long.stderr)
        self.assertEqual(len(long.stdout.splitlines()), 2)
        one = self.ok("rerank", model, "-q", "the cat", "-p", "cat " * 60, "--context", "12")
        self.assertIn(one.stdout.split()[0], long.stdout)
        vector, cut = (json.loads(self.ok("embed", model, "-p", "cat " * n, "--chunk", "12", "--truncate").stdout)["embeddings"]
                       for n in (10, 30))
        self.assertEqual(vector, cut)
        self.fails(1, "embed", model, "-p", "cat " * 30, "--chunk", "12",
                   contains=["line 1 has 32 tokens, the context holds 12; --context and --chunk can be at most 40"])

    def test_rerank_of_a_file_that_reads_no_pairs(self):
        folder, path = self.path("single"), self.path("single.moe")
        shutil.copytree(os.path.join(ENCODERS, "bert_pairs"), folder)
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
            tokenizer = json.load(f)
        tokenizer["post_processor"] = None
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump(tokenizer, f)
        self.ok("convert", folder, path, "--weights", "f32")
        self.fails(1, "rerank", path, "-q", "the cat", "-f", "-", text="birds\n",
                   contains=[path + ": the model file does not say how two texts are encoded together"])

    def test_rerank_of_several_labels(self):
        model, text = self.encoder("sequenceclassification"), "birds\nthe big cat\na dog sat\n"
        found = [json.loads(line) for line in
                 self.ok("rerank", model, "-q", "the cat", "-f", "-", "--json", text=text).stdout.splitlines()]
        self.assertEqual([j["index"] for j in found], [0, 1, 2])
        self.assertEqual([len(j["scores"]) for j in found], [3, 3, 3])
        for label in range(3):
            by = self.ok("rerank", model, "-q", "the cat", "-f", "-", "--json", "--label", str(label), text=text)
            self.assertEqual([json.loads(line)["index"] for line in by.stdout.splitlines()],
                             sorted(range(3), key=lambda i: -found[i]["scores"][label]))
        self.fails(2, "rerank", model, "-q", "a", "-p", "b", "--label", "3", contains=["--label", "0 to 2"])
        self.fails(2, "rerank", model, "-q", "a", "-p", "b", "--top", "1", contains=["--top", "3 scores", "--label"])

    def test_rerank_needs_a_head_of_classes(self):
        self.fails(1, "rerank", MODEL, "-q", "a", "-p", "b", contains=["head of classes", "not an encoder"])
        self.fails(1, "rerank", self.encoder("model"), "-q", "a", "-p", "b", contains=["it has no head"])
        self.fails(1, "rerank", self.encoder(), "-q", "a", "-p", "b", contains=["its head is for tokens"])
        self.fails(2, "rerank", self.reranker(), "-p", "b", contains=["--query"])

    def test_fill_knows_the_masks_of_bert(self):
        for folder in ("bert_maskedlm", "modernbert_maskedlm"):
            path = self.path(folder + ".moe")
            self.ok("convert", os.path.join(ENCODERS, folder), path, "--weights", "f32")
            with open(os.path.join(ENCODERS, folder, "golden.json")) as f:
                case = json.load(f)["cases"][0]
            j = json.loads(self.ok("fill", path, "-p", case["text"], "--json").stdout)
            self.assertEqual(j["tokens"], case["ids"])
            self.assertEqual(len(j["masks"]), 1)

    def test_embed_keeps_blank_lines_and_leaves_no_file_behind(self):
        model, out = self.encoder("model"), self.path("left.npy")
        for text, n in (("a\n\n\n", 3), ("a\n", 1), ("a", 1)):
            j = json.loads(self.ok("embed", model, "-f", "-", text=text).stdout)
            self.assertEqual(len(j["embeddings"]), n)
        self.fails(2, "embed", model, "-p", "", contains=["the text is empty"])
        special = json.loads(self.ok("embed", model, "-f", "-", text="\n").stdout)["embeddings"]
        self.assertEqual(json.loads(self.ok("embed", model, "-f", "-", text="a\n\n").stdout)["embeddings"][1], special[0])
        self.fails(1, "embed", model, "-p", "cat " * 60, "-o", out, contains=["line 1"])
        self.assertFalse(os.path.exists(out))
        self.fails(1, "embed", model, "-p", "cat", "-o", self.path("no/such.npy"), contains=["such.npy"])

    def test_inspect_says_what_the_head_is(self):
        self.assertIn("an encoder with a head of 3 classes",
                      self.ok("inspect", self.encoder("sequenceclassification")).stdout)
        self.assertIn("an encoder with a span head",
                      self.ok("inspect", self.encoder("questionanswering")).stdout)
        self.assertIn("an encoder without a head", self.ok("inspect", self.encoder("model")).stdout)
        j = json.loads(self.ok("inspect", self.encoder(), "--json").stdout)
        self.assertEqual((j["encoder"], j["head"], j["n_outputs"]), (True, "tokens", j["vocab_size"]))


main()
