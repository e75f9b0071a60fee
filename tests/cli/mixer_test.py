#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models whose layers have a state in place of keys and values: conversion, inspection, generation."""

import array
import json
import math
import os
import random

from support import Cli, main

FAMILIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/families")
IDS = "47,50,73,91,6,16,79,91,26,32,83,42,28,79"


class Mixers(Cli):
    def convert(self, *args):
        self.model = self.path("lfm2.moe")
        return self.ok("convert", os.path.join(FAMILIES, "lfm2_moe"), self.model, *args)

    def test_it_says_what_a_layer_has(self):
        self.convert("--weights", "f32")
        layers = json.loads(self.ok("inspect", self.model, "--json").stdout)["layers"]
        self.assertEqual([layer.get("mixer") for layer in layers], ["short_conv", "short_conv", None, "short_conv"])
        self.assertEqual([layer.get("state_bytes") for layer in layers], [256, 256, None, 256])  # 2 x 32 floats
        self.assertIn("short_conv with a state of 256 B", self.ok("inspect", self.model).stdout)
        memory = json.loads(self.ok("inspect", self.model, "--json").stdout)["memory"]
        self.assertEqual(memory["states of mixers"], 32 * 3 * 256)

    def test_results_do_not_depend_on_how_they_are_computed(self):
        self.convert("--weights", "int8")
        score = ["score", self.model, "--tokens", IDS, "--json"]
        one = json.loads(self.ok(*score).stdout)["logprob"]
        for args in (["--threads", "2"], ["--isa", "scalar"], ["--chunk", "1"], ["--chunk", "3"]):
            self.assertEqual(json.loads(self.ok(*score, *args).stdout)["logprob"], one)
        generate = ["generate", self.model, "--tokens", ",".join([IDS] * 3), "-n", "40", "--ignore-eos", "--temp", "0"]
        self.assertEqual(self.ok(*generate, "--draft", "8").stdout, self.ok(*generate).stdout)

    def test_the_research_layout_has_them(self):
        folder = self.path("research")
        write_research(folder, length=4)
        text = self.path("text")
        with open(text, "w", encoding="utf-8") as f:
            f.write("The owl and the fox went to the well. " * 40)
        self.model = self.path("research.moe")
        run = ["convert", folder, self.model, "--weights", "int4", "--calibrate", text, "--json"]
        report = json.loads(self.ok(*run).stdout)
        errors = {m["matrix"]: m.get("weighted_error") for m in report["matrices"]}
        for name in ("layers.0.short_conv.in", "layers.0.short_conv.out", "layers.1.attention.o"):
            self.assertIsNotNone(errors[name], name)
        self.assertTrue(self.ok("generate", self.model, "-p", "The owl", "-n", "5", "--ignore-eos").stdout)
        for length, code in ((0, 1), (65, 1), (2.5, 1)):
            write_research(folder, length=length)
            self.fails(code, "convert", folder, self.model, contains=["short_conv: length: expected a whole number in 1..64"])


def write_research(folder, length):
    """A decoder of bytes with a short convolution and attention, and random weights."""
    d, d_ff, taps = 32, 48, max(int(length), 1)
    config = {"model_type": "moe_research", "layout_version": 1, "vocab_size": 256, "d_model": d, "n_layers": 2,
              "context_length": 64, "norm": {"kind": "rms"}, "positions": "rope", "tie_embeddings": True,
              "tokenizer": "bytes", "layer_defaults": {"ffn": {"kind": "dense", "d_ff": d_ff, "act": "silu"}},
              "layers": [{"index": 0, "mixer": {"kind": "short_conv", "length": length}},
                         {"index": 1, "attention": {"n_heads": 4}}]}
    shapes = {"embedding.weight": [256, d], "final_norm.weight": [d], "layers.0.mixer_norm.weight": [d],
              "layers.0.short_conv.in.weight": [3 * d, d], "layers.0.short_conv.conv.weight": [d * taps],
              "layers.0.short_conv.out.weight": [d, d], "layers.1.attention_norm.weight": [d]}
    for name in "qkvo":
        shapes[f"layers.1.attention.{name}.weight"] = [d, d]
    for layer in range(2):
        shapes.update({f"layers.{layer}.ffn_norm.weight": [d], f"layers.{layer}.ffn.up.weight": [d_ff, d],
                       f"layers.{layer}.ffn.down.weight": [d, d_ff]})
    header, data, rng = {}, b"", random.Random(1)
    for name, shape in shapes.items():
        n = math.prod(shape)
        values = array.array("f", [1.0 if "norm" in name else rng.gauss(0, 0.4) for _ in range(n)])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * n]}
        data += values.tobytes()
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    head = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + data)


main()
