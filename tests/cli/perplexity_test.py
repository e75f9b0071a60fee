#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe perplexity: --stats (also of moe generate) and --sweep."""

import json
import os

from support import CHAT, CHECKPOINT, Cli, MODEL, main

TEXT = "Once upon a time there was a fox who found a key. The fox was very proud of it. " * 4


class Perplexity(Cli):
    def measure(self, *args):
        return json.loads(self.ok("perplexity", MODEL, "-p", TEXT, "--json", *args).stdout)

    def test_a_sweep_is_the_runs_one_by_one(self):
        rows = self.measure("--sweep", "topk=1:3:1")
        self.assertEqual([r["router"] for r in rows], ["topk:1", "topk:2", "topk:3"])
        for k, row in enumerate(rows, 1):
            alone = self.measure("--router", row["router"])
            self.assertEqual(row["perplexity"], alone["perplexity"])
            self.assertEqual(row["experts_per_token"], k)
        # Gate, up and down of 96 x 128, for 2 sub-tokens in 4 layers, with 2 operations per weight.
        self.assertEqual(rows[0]["expert_flops_per_token"], 2 * 3 * 96 * 128 * 2 * 4)
        self.assertEqual(rows[2]["expert_flops_per_token"], 3 * rows[0]["expert_flops_per_token"])

    def test_thresholds_use_more_experts_as_they_grow(self):
        rows = self.measure("--sweep", "threshold=0.1:1:0.3", "--router", "max_k=8")
        self.assertEqual([r["router"] for r in rows],
                         [f"threshold:{t},max_k=8" for t in ("0.1", "0.4", "0.7", "1")])
        used = [r["experts_per_token"] for r in rows]
        self.assertEqual(sorted(used), used)
        self.assertEqual(used[-1], 8)

    def test_other_parameters_join_the_router(self):
        rows = self.measure("--sweep", "gamma=0.5:2:1.5", "--router", "topk:2")
        self.assertEqual([r["router"] for r in rows], ["topk:2,gamma=0.5", "topk:2,gamma=2"])
        self.assertLess(rows[0]["experts_per_token"], rows[1]["experts_per_token"])
        self.assertEqual([r["router"] for r in self.measure("--sweep", "topk=2:2:1", "--router", "gamma=2")],
                         ["topk:2,gamma=2"])

    def test_table(self):
        text = self.ok("perplexity", MODEL, "-p", TEXT, "--sweep", "topk=1:2:1").stdout
        self.assertRegex(text, r"\A +topk  perplexity  experts  MFLOP/token  tokens/s\n"
                               r" +1 +\d+\.\d{4} +1\.000 +0\.590 +\d+\n +2 +\d+\.\d{4} +2\.000 +1\.180 +\d+\n\Z")

    def test_stats(self):
        r = self.ok("perplexity", MODEL, "-p", TEXT, "--stats")
        self.assertRegex(r.stderr, r"  layer    tokens  experts each   unused   dropped  positive  busiest experts\n"
                                   r"( +\d +\d+ +2\.00 +\d+ +0 +\d+\.\d %  \d.*\n){4} +all .* \d+\.\d %\n")
        measured = self.measure("--stats")
        layers = measured["routing"]
        self.assertEqual([l["mean_experts_per_token"] for l in layers], [2] * 4)
        self.assertEqual([a["share_positive"] for a in measured["activations"]], [l["share_positive"] for l in layers])
        plain = self.measure()
        self.assertNotIn("routing", plain)
        self.assertNotIn("activations", plain)
        row, = self.measure("--stats", "--sweep", "topk=2:2:1")
        self.assertEqual(row["activations"], measured["activations"])

    def test_stats_of_dense_layers(self):
        self.ok("convert", os.path.join(CHECKPOINT, "../every_second_layer"), self.path("mixed.moe"))
        command = ("generate", self.path("mixed.moe"), "--tokens", "2,5,9", "-n", "8", "--stats")
        lines = self.ok(*command).stderr.splitlines()[-6:]  # the table
        self.assertRegex(lines[1], r"^ +0 +- +- +- +- +\d+\.\d %  dense$")
        self.assertNotIn("dense", lines[2] + lines[5])
        measured = json.loads(self.ok(*command, "--json").stdout)
        self.assertEqual([l["layer"] for l in measured["routing"]], [1, 3])
        activations = measured["activations"]
        self.assertEqual([a["layer"] for a in activations], [0, 1, 2, 3])
        for a in activations:
            self.assertEqual(a["share_positive"], a["n_positive"] / a["n_activations"])
        all_of = sum(a["n_positive"] for a in activations) / sum(a["n_activations"] for a in activations)
        self.assertIn(f"{100 * all_of:.1f} %", lines[5])

    def test_stats_of_a_dense_model(self):
        model = self.path("dense.moe")
        self.ok("convert", CHAT, model)
        r = self.ok("perplexity", model, "-p", TEXT, "--stats")
        self.assertRegex(r.stderr, r"\A.*\n +0 +- +- +- +- +\d+\.\d %  dense\n\Z")
        measured = json.loads(self.ok("perplexity", model, "-p", TEXT, "--stats", "--json").stdout)
        self.assertEqual(measured["routing"], [])
        self.assertEqual([a["layer"] for a in measured["activations"]], [0])

    def test_bad_sweeps_run_nothing(self):
        for sweep, words in (("k=1:2:1", ["--sweep", "threshold, topk, gamma, resident"]),
                             ("topk=1:2", ["NAME=FROM:TO:STEP"]), ("topk=1:x:1", ["topk=1:x:1"]),
                             ("topk=2:1:1", ["FROM at most TO"]), ("topk=1:2:0", ["STEP above 0"]),
                             ("gamma=0:1:0.0001", ["1000"]), ("gamma=0:1e300:1e-300", ["1000"]), ("gamma=nan:1:1", ["gamma=nan"]),
                             ("gamma=0:1:0.5", ["gamma=0", "gamma=inf means no limit"]),
                             ("threshold=0.5:1.5:0.5", ["0..1", "1.5"]), ("topk=1:99:98", ["99"])):
            self.fails(2, "perplexity", MODEL, "-p", TEXT, "--sweep", sweep, contains=words)
        self.fails(2, "perplexity", MODEL, "-p", TEXT, "--sweep", "gamma=1:2:1", "--router", "gamma=1",
                   contains=["gamma"])


if __name__ == "__main__":
    main()
