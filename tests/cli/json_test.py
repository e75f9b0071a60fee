#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/json.md names the keys that --json prints, and no others."""

import json
import os
import re

from support import CHAT, CHECKPOINT, Cli, MODEL, main

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/json.md")
TEXT = "Once upon a time there was a fox."
FREE = {"account"}  # their keys say what the bytes are of; as those of inspect's memory


def keys_of(value, free=FREE):
    found = set()
    if isinstance(value, list):
        for v in value:
            found |= keys_of(v, free)
    if isinstance(value, dict):
        for k, v in value.items():
            found |= {k} | (set() if k in free else keys_of(v, free))
    return found


class JsonKeys(Cli):
    def setUp(self):
        super().setUp()
        with open(PAGE, encoding="utf-8") as f:
            parts = re.split(r"^## (.+)$", f.read(), flags=re.M)
        self.sections = dict(zip(parts[1::2], parts[2::2], strict=True))

    def documented(self, command, first_column=False):
        rows = re.findall(r"^\| (.+?) \| (.+) \|$", self.sections[command], re.M)[1:]
        cells = [row[0] if first_column else " ".join(row) for row in rows]
        return {k for cell in cells for word in re.findall(r"`([a-z][a-z0-9_.]*)`", cell) for k in word.split(".")}

    def agrees(self, command, *outputs, rare=(), free=FREE):
        """All keys of the outputs are in the section or in that of statistics; all of the section's are in the outputs."""
        found = set().union(*(keys_of(json.loads(line), free) for line in outputs))
        known = self.documented(command) | self.documented("Statistics")
        known |= self.documented("generate") if command == "batch" else set()
        self.assertEqual(found - known, set())
        self.assertEqual(self.documented(command, first_column=True) - found - set(rare), set())

    def json(self, *args, **kwargs):
        return self.ok(*args, "--json", **kwargs).stdout

    def test_texts(self):
        full = self.json("generate", MODEL, "-p", TEXT, "-n", "2", "--logprobs", "2", "--stats", "--router", "resident=0.1")
        self.agrees("generate", full, self.json("generate", MODEL, "--tokens", "1", "-n", "2", "--draft", "2"))
        tokens = json.loads(full)["tokens"]
        pieces = [json.loads(self.json("tokenize", MODEL, "--no-bos", t["piece"].replace("\u0120", " ")))["pieces"] for t in tokens]
        self.assertEqual(pieces, [[t["piece"]] for t in tokens])
        self.assertEqual(tokens[0]["piece"], tokens[0]["top"][0]["piece"])
        score, top = (json.loads(self.json(c, MODEL, "-p", TEXT)) for c in ("score", "eval"))
        self.assertEqual([t["piece"] for t in score["tokens"]], json.loads(self.json("tokenize", MODEL, TEXT))["pieces"])
        self.agrees("score", json.dumps(score))
        self.agrees("eval", json.dumps(top))
        self.agrees("tokenize", self.json("tokenize", MODEL, TEXT), self.json("tokenize", MODEL, "--decode", "1"))
        sweep = self.json("perplexity", MODEL, "-p", TEXT, "--stats", "--sweep", "topk=1:2:1")
        self.agrees("perplexity", self.json("perplexity", MODEL, "-p", TEXT, "--stats"), sweep)
        self.agrees("compare", self.json("compare", MODEL, MODEL, "-p", TEXT))
        self.agrees("embed", self.ok("embed", MODEL, "-p", TEXT).stdout,
                    self.ok("embed", MODEL, "-p", TEXT, "-p", TEXT, "--similarity").stdout)
        self.agrees("chat", self.json("chat", MODEL, "-n", "2", "--draft", "2", "--shift", text="Once\n"), rare=("tool_calls",))
        self.ok("trace", MODEL, "-p", TEXT, "-n", "4", "-o", self.path("t.csv"))
        self.agrees("trace", self.json("trace", self.path("t.csv"), "--budgets"))

    def test_batch(self):
        lines = '{"prompt": "Once", "id": 1}\n{"messages": [{"role": "user", "content": "Once"}]}\n{}\n'
        args = ("batch", MODEL, "-", "-", "-n", "2")
        found = self.ok(*args, "--logprobs", "2", "--template", "plain", text=lines).stdout.splitlines()
        self.agrees("batch", *found, rare=["tokens", "tool_calls"])
        prompt, chat = (json.loads(line)["logprobs"] for line in found[:2])
        expected = json.loads(self.json("generate", MODEL, "-p", "Once", "-n", "2", "--logprobs", "2"))["tokens"]
        self.assertEqual((prompt, chat), (expected, expected))
        found = self.ok(*args, "--logprobs", "0", text=lines).stdout.splitlines()
        self.assertEqual(set(json.loads(found[0])["logprobs"][0]), {"id", "piece", "logprob"})
        self.assertNotIn("logprobs", self.ok(*args, text=lines).stdout)
        self.ok("convert", CHECKPOINT, self.path("ids.moe"))
        self.agrees("batch", self.ok("batch", self.path("ids.moe"), "-", "-", "-n", "2", text='{"tokens": [1]}').stdout,
                    rare=["tool_calls", "id", "error", "text", "logprobs"])

    def test_models(self):
        data = os.path.join(CHECKPOINT, "../..")
        free = FREE | {"memory", "prompts"}
        seen = [self.json("inspect", MODEL, "--tensors", "--verify", "--memory", "1G")]
        for source in ("translation/mbart", "encoders/xlmr_maskedlm", "encoders/sentences", "families/glm4_moe_mtp", "pytorch/threshold", "pytorch/cosine_softmax_top2"):
            converted = self.json("convert", os.path.join(data, source), self.path("m.moe"), "--verify")
            seen.append(self.json("inspect", self.path("m.moe")))
            if source == "translation/mbart":
                self.agrees("translate", self.json("translate", self.path("m.moe"), "-p", "the cat", "--max-tokens", "4"))
            if source == "encoders/xlmr_maskedlm":
                self.agrees("fill", self.json("fill", self.path("m.moe"), "-p", "the <mask>"))
        self.agrees("inspect", *seen, free=free)
        text = "the cat sat on the mat " * 200
        calibrated = self.json("convert", CHAT, self.path("c.moe"), "--weights", "int4", "--calibrate", "-", text=text)
        sized = self.json("convert", CHAT, self.path("c.moe"), "--bits", "9")
        self.agrees("convert", converted, calibrated, sized, rare=["split"])


if __name__ == "__main__":
    main()
