#!/usr/bin/env python3
"""Help, mistakes and exit codes of the command."""

import os

from support import Cli, MODEL, main


class Usage(Cli):
    def test_help_names_every_command(self):
        out = self.ok("--help").stdout
        for command in ("generate", "chat", "convert", "inspect", "perplexity", "tokenize", "eval", "bench"):
            self.assertIn(command, out)
            self.assertIn("--help", self.ok(command, "--help").stdout)

    def test_wrong_usage_is_2(self):
        self.fails(2, contains=["generate"])
        self.fails(2, "frobnicate", contains=["frobnicate", "convert"])
        self.fails(2, "--frobnicate", contains=["--frobnicate"])
        self.fails(2, "generate")
        self.fails(2, "generate", MODEL, "--no-such-option")
        self.fails(2, "generate", MODEL, "-p", "x", "--temp", "warm")
        self.fails(2, "generate", MODEL, contains=["prompt"])
        self.fails(2, "inspect", MODEL, "--memory", "lots", contains=["lots"])
        self.fails(2, "bench", contains=["--synthetic"])
        self.fails(2, "eval", MODEL, contains=["--tokens"])

    def test_errors_are_1_and_name_the_thing(self):
        self.fails(1, "inspect", self.path("none.moe"), contains=["none.moe"])
        with open(self.path("bad.moe"), "wb") as f:
            f.write(b"not a model" * 100)
        self.fails(1, "inspect", self.path("bad.moe"), contains=["bad.moe", "not a model file"])
        self.fails(1, "convert", MODEL, self.path("x.moe"), contains=[MODEL, "folder"])
        self.fails(1, "generate", MODEL, "-p", "x", "--isa", "mmx", contains=["mmx"])
        self.fails(1, "generate", MODEL, "-p", "x", "--device", "cuda", contains=["cuda"])
        self.fails(1, "generate", MODEL, "-p", "x", "--router", "topk:0")
        self.fails(1, "generate", MODEL, "-p", "x", "--router", "magic:3", contains=["magic"])
        self.fails(1, "eval", MODEL, "--tokens", "1,99999999", contains=["99999999"])
        self.fails(1, "generate", MODEL, "-p", "x", "--memory", "100K", contains=["KV"])
        self.fails(1, "convert", self.path("nothing"), self.path("x.moe"), contains=["nothing"])
        self.assertFalse(os.path.exists(self.path("x.moe")))


if __name__ == "__main__":
    main()
