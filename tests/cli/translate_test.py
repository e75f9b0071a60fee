#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe translate: one output line per input line, and the messages for models of other kinds."""

import json
import os

from support import Cli, MODEL, main

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data")
LINES = "the cat sat\n\na dog ran to the house\n"


class Translate(Cli):
    def model(self, name="translation/mbart"):
        path = self.path(os.path.basename(name) + ".moe")
        if not os.path.exists(path):
            self.ok("convert", os.path.join(DATA, name), path, "--weights", "f32")
        return path

    def test_every_line_has_its_translation(self):
        model = self.model()
        out = self.ok("translate", model, "-f", "-", text=LINES).stdout.split("\n")
        self.assertEqual(len(out), 4)
        self.assertEqual((out[1], out[3]), ("", ""))
        found = [json.loads(line) for line in
                 self.ok("translate", model, "-f", "-", "--json", text=LINES).stdout.splitlines()]
        self.assertEqual([j["source"] for j in found], LINES.splitlines())
        self.assertEqual([len(j["translations"]) for j in found], [1, 0, 1])
        self.assertEqual(found[0]["translations"][0]["text"], out[0])
        # A translation begins with the language token of the file, or with --prefix.
        self.assertEqual(found[0]["translations"][0]["tokens"][0], 4)
        j = json.loads(self.ok("translate", model, "-p", "the cat", "--json", "--prefix", " dog").stdout)
        self.assertTrue(j["translations"][0]["text"].strip().startswith("dog"))

    def test_help_tells_its_own_default_of_the_chunk(self):
        out = " ".join(self.ok("translate", "--help").stdout.split())
        self.assertIn("Tokens evaluated at once, at most 4096 (default the context)", out)

    def test_searches_find_what_transformers_finds(self):
        model = self.model()
        with open(os.path.join(DATA, "translation/mbart/golden.json")) as f:
            golden = json.load(f)
        for case in golden["cases"]:
            for stop in ("step", "bound"):
                j = json.loads(self.ok(
                    "translate", model, "--tokens", ",".join(map(str, case["source"])), "--json",
                    "--nbest", "5", "--search-end", stop, "--min-tokens", "0", "--kv", "f32",
                    "--max-tokens", str(golden["max_tokens"])).stdout)
                self.assertEqual([t["tokens"] for t in j["translations"]], case[stop])
        lines = self.ok("translate", model, "-p", "a dog", "--nbest", "3").stdout.splitlines()
        scores = [float(line.split("\t")[0]) for line in lines]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(len(scores), 3)

    def test_a_search_that_cannot_be_is_named(self):
        model = self.model()
        for option, value in (("--beam", "0"), ("--beam", "65"), ("--nbest", "6"), ("--search-end", "soon")):
            self.fails(2, "translate", model, "-p", "a", option, value, contains=[option])
        self.fails(2, "translate", model, "-p", "a", "--length-penalty", "nan",
                   contains=["--length-penalty"])
        self.fails(2, "translate", model, "-p", "a", "--min-tokens", "9", "--max-tokens", "8",
                   contains=["--min-tokens 9: expected at most 8"])
        self.fails(2, "translate", model, "-p", "a", "--max-tokens", "48", contains=["48"])
        self.fails(1, "translate", model, "-p", "cat " * 60, contains=["line 1", "source"])

    def test_the_other_kinds_of_model_are_named(self):
        self.fails(1, "translate", MODEL, "-p", "a", contains=["a decoder", "encoder-decoder"])
        encoder = self.model("encoders/xlmr_maskedlm")
        self.fails(1, "translate", encoder, "-p", "a", contains=["an encoder;", "encoder-decoder"])
        model = self.model()
        for command in ("generate", "eval", "perplexity", "score", "chat", "bench", "trace", "fill",
                        "embed", "batch"):
            text = ["-p", "the cat"]
            if command in ("chat", "bench"):
                text = []
            if command == "trace":
                text += ["-o", self.path("t.csv")]
            if command == "batch":
                text = [self.path("in.jsonl"), self.path("out.jsonl")]
                with open(text[0], "w") as f:
                    f.write('{"prompt": "a"}\n')
            self.fails(1, command, model, *text, text="hello\n",
                       contains=["encoder-decoder", command, "moe translate"])


main()
