#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe compare: against sums computed here, with files of log-probabilities, and what it refuses."""

import json
import math
import os
import struct

from support import CHAT, CHECKPOINT, Cli, MODEL, main

BYTES = os.path.join(CHECKPOINT, "../bytes")  # experts, and one token per byte
TEXT = "Once upon a time there was a fox who found a key. The fox was very proud of it. " * 3


class Base:
    """A file of log-probabilities, read here."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.bytes = f.read()
        magic, self.window, self.vocab, self.n = struct.unpack_from("<8siii", self.bytes)
        assert magic == b"_logits_"
        self.tokens = struct.unpack_from(f"<{self.window * self.n}i", self.bytes, 20)
        at = 20 + 4 * self.window * self.n
        width = (self.vocab + 1) // 2 * 2
        self.rows = []  # (token that follows, log-probabilities)
        for w in range(self.n):
            for position in range(self.window // 2, self.window - 1):
                step, least = struct.unpack_from("<ff", self.bytes, at)
                codes = struct.unpack_from(f"<{width}H", self.bytes, at + 8)
                self.rows.append((self.tokens[w * self.window + position + 1], [step * c + least for c in codes[:self.vocab]]))
                at += 8 + 2 * width
        assert at == len(self.bytes)


def divergence(a, b):
    return sum(math.exp(p) * (p - q) for p, q in zip(a, b, strict=True) if p > -16)


class Compare(Cli):
    def compare(self, *args, text=TEXT):
        return json.loads(self.ok("compare", *args, *(["-p", text] if text else []), "--json").stdout)

    def base(self, model, name, *args):
        self.ok("compare", model, "-p", TEXT, "--save-base", self.path(name), *args)
        return Base(self.path(name))

    def checkpoint(self):
        """With logits close enough together that no row spans the 16 nats that a file keeps."""
        folder = self.path("bytes")
        if not os.path.exists(folder):
            os.mkdir(folder)
            with open(os.path.join(BYTES, "config.json"), encoding="utf-8") as f:
                config = json.load(f)
            config["logit_multiplier"] = 0.05
            del config["precision"]  # f32, also by default
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
                json.dump(config, f)
            os.symlink(os.path.abspath(os.path.join(BYTES, "model.safetensors")), os.path.join(folder, "model.safetensors"))
        return folder

    def quantised(self):
        """The checkpoint in floats, and with weights that cost it a lot."""
        self.ok("convert", self.checkpoint(), self.path("exact.moe"), "--weights", "source")
        self.ok("convert", self.checkpoint(), self.path("low.moe"), "--weights", "ternary2")
        return self.path("exact.moe"), self.path("low.moe")

    def test_sums(self):
        exact, low = self.quantised()
        a, b = self.base(exact, "a.kld"), self.base(low, "b.kld")
        self.assertEqual((a.window, a.vocab, a.n), (b.window, b.vocab, b.n))
        self.assertEqual(a.tokens, b.tokens)
        found = self.compare(exact, low)
        n = len(a.rows)
        self.assertEqual((found["n_scored"], found["window"], found["n_windows"]), (n, a.window, a.n))
        kl = sorted(divergence(p, q) for (_, p), (_, q) in zip(a.rows, b.rows, strict=True))
        mean = sum(kl) / n
        self.assertGreater(mean, 1e-3)
        self.assertAlmostEqual(found["kl"]["mean"], mean, delta=1e-3 * mean)
        spread = math.sqrt(sum((x - mean) ** 2 for x in kl) / n / (n - 1))
        self.assertAlmostEqual(found["kl"]["error"], spread, delta=1e-2 * spread)
        for key, share in (("median", 0.5), ("p99", 0.99), ("largest", 1)):
            at = share * (n - 1)
            low_at, high_at = kl[int(at)], kl[min(int(at) + 1, n - 1)]
            expected = low_at + (at - int(at)) * (high_at - low_at)
            self.assertAlmostEqual(found["kl"][key], expected, delta=2e-3 * expected + 1e-6)
        same = sum(p.index(max(p)) == q.index(max(q)) for (_, p), (_, q) in zip(a.rows, b.rows, strict=True)) / n
        self.assertEqual(found["same_best"]["mean"], same)
        for key, base in (("reference", a), ("model", b)):
            nll = [-row[token] for token, row in base.rows]
            self.assertAlmostEqual(found[key]["mean_nll"], sum(nll) / n, places=3)
            self.assertAlmostEqual(found[key]["perplexity"], math.exp(sum(nll) / n), delta=0.01 * math.exp(sum(nll) / n))
        difference = found["model"]["mean_nll"] - found["reference"]["mean_nll"]
        self.assertAlmostEqual(found["nll_difference"]["mean"], difference, places=9)
        ranges = found["positions"]
        self.assertEqual((ranges[0]["first"], ranges[-1]["last"]), (a.window // 2, a.window - 2))
        self.assertEqual(sum(r["n_scored"] for r in ranges), n)
        self.assertAlmostEqual(sum(r["kl"] * r["n_scored"] for r in ranges) / n, found["kl"]["mean"], places=9)

    def test_experts_that_both_choose(self):
        exact, low = self.quantised()
        layers = self.compare(exact, low)["layers"]
        n_moe = json.loads(self.ok("inspect", exact, "--json").stdout)["n_moe_layers"]
        self.assertEqual(len(layers), n_moe)
        for layer in layers:
            self.assertLess(layer["same_experts"], 1)
            self.assertGreaterEqual(layer["shared_experts"], layer["same_experts"])
        for layer in self.compare(exact, exact)["layers"]:
            self.assertEqual((layer["shared_experts"], layer["same_experts"]), (1, 1))
        self.assertEqual(self.compare(CHAT, CHAT)["layers"], [])  # dense
        # Each token, and each of its sub-tokens: the last of a window is not read.
        found = self.compare(MODEL, MODEL)
        for layer in found["layers"]:
            self.assertEqual(layer["n_tokens"], 2 * found["n_windows"] * (found["window"] - 1))

    def test_a_model_is_itself(self):
        found = self.compare(MODEL, MODEL, "--context", "32")
        self.assertEqual((found["kl"]["mean"], found["kl"]["largest"], found["same_best"]["mean"]), (0, 0, 1))
        self.assertEqual(found["reference"]["perplexity"], found["model"]["perplexity"])
        self.assertEqual(found["nll_difference"], {"mean": 0, "error": 0})

    def test_rows_are_those_of_eval(self):
        base = self.base(MODEL, "b.kld", "--context", "16")
        window = base.tokens[base.window:2 * base.window]  # the second: its first token becomes that of every text
        ids = ",".join(str(t) for t in (base.tokens[0], *window[1:9]))
        best = json.loads(self.ok("eval", MODEL, "--tokens", ids, "--top", "4", "--json").stdout)["top"]
        token, row = base.rows[base.window // 2 - 1]  # the first of the second window, at position 8
        self.assertEqual(token, window[9])
        for candidate in best:
            self.assertAlmostEqual(row[candidate["id"]], candidate["logprob"], delta=2e-4)
        self.assertAlmostEqual(math.fsum(map(math.exp, row)), 1, delta=1e-3)

    def test_a_file_stands_for_the_reference(self):
        exact, low = self.quantised()
        both = self.compare(exact, low, "--save-base", self.path("both.kld"))
        alone = json.loads(self.ok("compare", exact, "-p", TEXT, "--save-base", self.path("alone.kld"), "--json").stdout)
        self.assertEqual(Base(self.path("both.kld")).bytes, Base(self.path("alone.kld")).bytes)
        self.assertEqual(alone["reference"]["perplexity"], both["reference"]["perplexity"])
        later = self.compare(self.path("alone.kld"), low, text="")
        self.assertEqual(later["n_scored"], both["n_scored"])
        self.assertEqual(later["model"]["perplexity"], both["model"]["perplexity"])
        self.assertAlmostEqual(later["kl"]["mean"], both["kl"]["mean"], delta=1e-3 * both["kl"]["mean"])
        self.assertEqual(later["layers"], [])

    def test_a_file_of_another_program(self):
        """All tokens equally likely, with any number where the vocabulary is odd."""
        exact, _ = self.quantised()
        base = self.base(exact, "own.kld", "--context", "8")
        rows = len(base.rows)
        width = (base.vocab + 1) // 2 * 2
        row = struct.pack("<ff", 0, -math.log(base.vocab)) + b"\0" * (2 * width)
        with open(self.path("even.kld"), "wb") as f:
            f.write(base.bytes[:20 + 4 * len(base.tokens)] + row * rows)
        found = self.compare(self.path("even.kld"), exact, text="")
        expected = sum(sum(-math.log(base.vocab) - q for q in row) / base.vocab for _, row in base.rows) / rows
        self.assertAlmostEqual(found["kl"]["mean"], expected, delta=1e-3 * expected)
        self.assertAlmostEqual(found["reference"]["perplexity"], base.vocab, delta=1e-3)

    def test_a_checkpoint_is_taken_as_it_is(self):
        source = self.checkpoint()
        self.ok("convert", source, self.path("default.moe"))
        exact, low = self.quantised()
        found = self.compare(source, source)  # the model is what the default makes of it
        self.assertEqual(found["kl"], self.compare(exact, self.path("default.moe"))["kl"])
        self.assertGreater(found["kl"]["mean"], 0)
        self.assertEqual(self.compare(source, low)["kl"], self.compare(exact, low)["kl"])
        self.assertIn("2 models", self.ok("cache").stdout)

    def test_table(self):
        exact, low = self.quantised()
        text = self.ok("compare", exact, low, "-p", TEXT).stdout
        self.assertRegex(text, r"\Areference +perplexity \d+\.\d{4} ± \d+\.\d{4}  .*exact\.moe\n"
                               r"model +perplexity \d+\.\d{4} ± \d+\.\d{4}  .*low\.moe\n"
                               r"difference +[+-]\d+\.\d\d ± \d+\.\d\d %\n"
                               r"KL divergence +\d+\.\d{5} ± \d+\.\d{5} nats, median \d.*, 90 % \d.*, 99 % \d.*, most \d.*\n"
                               r"same best token +\d+\.\d\d ± \d+\.\d\d %\n\d+ tokens scored, in \d windows of \d+\n\n"
                               r" +position  KL divergence  same best token\n( +\d+\.\.\d+ .* %\n){8}\n"
                               r" +layer  experts chosen by both  tokens with the same experts\n( +\d+ +\d+\.\d % +\d+\.\d %\n)+\Z")

    def test_two_vocabularies(self):
        exact, _ = self.quantised()
        self.fails(1, "compare", MODEL, exact, "-p", TEXT, contains=["two vocabularies", "stories.moe has", "exact.moe has 258"])
        self.base(MODEL, "b.kld")
        self.fails(1, "compare", self.path("b.kld"), exact, contains=["two vocabularies", "b.kld has", "exact.moe has 258"])

    def test_two_vocabularies_of_one_size(self):
        for name in ("a", "b"):
            os.mkdir(self.path(name))
            for file in os.listdir(CHAT):
                with open(os.path.join(CHAT, file), "rb") as f:
                    content = f.read()
                if file == "tokenizer.json" and name == "b":
                    tokenizer = json.loads(content)
                    added = tokenizer["added_tokens"][-1]
                    self.word, added["content"] = added["content"], "<renamed>"
                    vocab = tokenizer["model"]["vocab"]
                    if self.word in vocab:
                        vocab["<renamed>"] = vocab.pop(self.word)
                    content = json.dumps(tokenizer).encode()
                with open(os.path.join(self.path(name), file), "wb") as f:
                    f.write(content)
            self.ok("convert", self.path(name), self.path(name + ".moe"))
        self.fails(1, "compare", self.path("a.moe"), self.path("b.moe"), "-p", TEXT,
                   contains=["two vocabularies", self.word, "<renamed>", "a.moe", "b.moe"])

    def test_damaged_files(self):
        base = self.base(MODEL, "b.kld", "--context", "16").bytes
        head = base[:20]

        def refused(content, *words):
            with open(self.path("bad.kld"), "wb") as f:
                f.write(content)
            self.fails(1, "compare", self.path("bad.kld"), MODEL, contains=["bad.kld", *words])

        refused(base[:-1], "bytes, found")
        refused(base + b"\0", "bytes, found")
        refused(head, "bytes, found")
        for at, value, words in ((8, 0, "tokens of a window: expected 3"), (8, -1, "tokens of a window"),
                                 (12, 0, "vocabulary: expected 1"), (16, 0, "number of windows: expected 1"),
                                 (16, 2**31 - 1, "bytes, found"), (12, 2**24, "bytes, found"),
                                 (20, -1, "token: expected 0.."), (20, 10**6, "token: expected 0..")):
            refused(base[:at] + struct.pack("<i", value) + base[at + 4:], words)
        row = 20 + 4 * len(Base(self.path("b.kld")).tokens)
        for step, least in ((math.nan, -1), (-1, -1), (math.inf, -1), (1, math.nan)):
            refused(base[:row] + struct.pack("<ff", step, least) + base[row + 8:], "not finite")
        with open(self.path("bad.kld"), "wb") as f:  # no file of log-probabilities, and no model
            f.write(b"_logits")
        self.fails(1, "compare", self.path("bad.kld"), MODEL, "-p", TEXT)

    def test_what_makes_no_sense(self):
        base = self.path("b.kld")
        self.base(MODEL, "b.kld", "--context", "16")
        self.fails(2, "compare", MODEL, "-p", TEXT, contains=["MODEL is missing", "--save-base"])
        self.fails(2, "compare", base, contains=["MODEL is missing", "b.kld"])
        for args in (("-p", TEXT), ("--context", "32"), ("--save-base", self.path("c.kld"))):
            self.fails(2, "compare", base, MODEL, *args, contains=[args[0].replace("-p", "--prompt") if args[0] == "-p" else args[0], "b.kld"])
        self.fails(1, "compare", MODEL, self.path("none.moe"), "-p", TEXT, contains=["none.moe"])
        self.fails(1, "compare", MODEL, MODEL, "-p", "x", contains=["expected at least 3"])
        self.fails(1, "compare", MODEL, MODEL, "-p", TEXT, "--context", "512", contains=["expected at least 512"])
        self.fails(2, "compare", MODEL, MODEL, "-p", TEXT, "--save-base", MODEL, contains=["this is the reference"])
        self.assertFalse(os.path.exists(self.path("c.kld")))


if __name__ == "__main__":
    main()
