#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Context size: a session has as many positions as the text needs, at most the model's context."""

import json
import os
import shutil

from support import CHAT, Cli, MODEL, main


class Context(Cli):
    def long_model(self):
        """A model with a context of 100000 and one token per byte."""
        folder = self.path("source")
        shutil.copytree(CHAT, folder)
        with open(os.path.join(folder, "config.json")) as f:
            config = {**json.load(f), "context_length": 100000}
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        self.ok("convert", folder, self.path("m.moe"))
        return self.path("m.moe")

    def test_a_prompt_longer_than_4096_just_works(self):
        model = self.long_model()
        text = "word " * 1200
        j = json.loads(self.ok("generate", model, "-f", "-", "-n", "2", "--ignore-eos", "--json", text=text).stdout)
        self.assertGreater(j["n_prompt"], 4096)
        self.assertEqual(j["n_generated"], 2)
        j = json.loads(self.ok("eval", model, "-f", "-", "--json", text=text).stdout)
        self.assertGreater(len(j["tokens"]), 4096)
        j = json.loads(self.ok("perplexity", model, "-f", "-", "--json", text=text).stdout)
        self.assertEqual(j["context"], 4096)
        self.assertIn("windows of 4096", self.ok("perplexity", model, "-f", "-", text=text).stdout)

    def test_without_a_limit_there_is_room_for_4096(self):
        j = json.loads(self.ok("generate", self.long_model(), "-p", "Once", "-n", "0", "--ignore-eos", "--json").stdout)
        self.assertEqual(j["finish"], "context")
        self.assertAlmostEqual(j["n_generated"], 4096, delta=1)

    def test_a_session_is_no_larger_than_it_must_be(self):
        def kv(*more):
            r = self.fails(1, "generate", self.path("m.moe"), "-p", "Once", "--memory", "1K", *more, contains=["KV cache"])
            return float(r.stderr.split("KV cache ")[1].split(" ")[0])
        self.long_model()
        self.assertAlmostEqual(kv("-n", "4996") / kv("--context", "5000"), 1, delta=0.01)
        self.assertLess(kv("-n", "100") * 20, kv("-n", "4996"))

    def test_messages_name_the_option_and_the_models_limit(self):
        text = "Once upon a time. " * 200
        longest, larger = "tokens, the context holds 512, this model's maximum", "; --context can be at most 512 with this model"
        for command, subject in (("generate", "the text"), ("eval", "the text"), ("trace", "the text"), ("score", "line 1"), ("embed", "line 1")):
            more = ("-o", self.path("t")) if command == "trace" else ()
            self.fails(1, command, MODEL, "-f", "-", *more, text=text, contains=[f"moe: {subject} has ", longest])
            self.fails(1, command, MODEL, "-p", "Once upon a time", "--context", "2", *more,
                       contains=[f"moe: {subject} has 5 tokens, the context holds 2{larger}"])
        self.fails(1, "eval", MODEL, "--tokens", ",".join(["1"] * 513), contains=["the text has 513 tokens", longest[7:]])
        found = self.ok("batch", MODEL, "-", "-", "--context", "2", text='{"prompt": "Once upon a time"}\n').stdout
        self.assertEqual(json.loads(found)["error"], f"the text has 5 tokens, the context holds 2{larger}")
        self.fails(1, "chat", MODEL, "--context", "2", text="Once upon a time\n", contains=["the conversation has 5 tokens, the context holds 2" + larger])
        self.fails(2, "bench", MODEL, "-p", "20", "-n", "4", "--context", "16", contains=["-p, -d and -n need 20 tokens, the context holds 16" + larger])
        self.fails(2, "generate", MODEL, "-p", "x", "--context", "513", contains=["--context 513", "512"])
        self.assertIn("the text plus -n", " ".join(self.ok("generate", "--help").stdout.split()))
        self.assertIn("at most 4096", " ".join(self.ok("perplexity", "--help").stdout.split()))


if __name__ == "__main__":
    main()
