#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--kv latent: its results, its memory, and the models that refuse it."""

import json
import os

from support import Cli, MODEL, main

FAMILIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/families")
IDS = "47,50,73,91,6,16,79,91,26,32,83,42,28,79"


class Latent(Cli):
    def convert(self):
        self.model = self.path("deepseek.moe")
        self.ok("convert", os.path.join(FAMILIES, "deepseek_v2"), self.model, "--weights", "f32")

    def logprob(self, *args):
        return json.loads(self.ok("score", self.model, "--tokens", IDS, "--json", *args).stdout)["logprob"]

    def test_scores_are_those_of_keys_and_values(self):
        self.convert()
        exact, latent = self.logprob("--kv", "f32"), self.logprob("--kv", "latent")
        self.assertNotEqual(latent, exact)
        self.assertAlmostEqual(latent / exact, 1, delta=1e-3)
        for args in (["--threads", "2"], ["--isa", "scalar"], ["--chunk", "3"]):
            self.assertEqual(self.logprob("--kv", "latent", *args), latent)

    def test_it_is_counted(self):
        self.convert()
        layers = json.loads(self.ok("inspect", self.model, "--json").stdout)["layers"]
        self.assertEqual([layer["kv_latent"] for layer in layers], [24 + 8, 24 + 8])
        self.assertIn("32 values per position with --kv latent", self.ok("inspect", self.model).stdout)
        found = {}
        for kv in ("f16", "latent"):
            run = ["bench", self.model, "-p", "0", "-n", "8", "-r", "1", "--kv", kv, "--json"]
            found[kv] = json.loads(self.ok(*run).stdout)["kv_bytes_per_token"]
        self.assertEqual(found["latent"] * 4 * 2 * 16, found["f16"] * 32)  # 32 values, not 2 x 4 x 16

    def test_other_models_refuse_it(self):
        self.fails(1, "generate", MODEL, "-p", "a", "--kv", "latent",
                   contains=["kv latent: layer 0", "no multi-head latent attention"])
        self.fails(2, "generate", MODEL, "-p", "a", "--kv", "Latent", contains=["--kv"])


main()
