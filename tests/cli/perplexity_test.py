#!/usr/bin/env python3
"""moe perplexity: --stats and --sweep."""

import json

from support import Cli, MODEL, main

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
        # Gate, up and down of 96 x 128, for 2 sub-tokens in 4 layers.
        self.assertEqual(rows[0]["expert_flops_per_token"], 2 * 3 * 96 * 128 * 2 * 4)
        self.assertEqual(rows[2]["expert_flops_per_token"], 3 * rows[0]["expert_flops_per_token"])

    def test_thresholds_use_more_experts_as_they_grow(self):
        rows = self.measure("--sweep", "threshold=0.1:1:0.3", "--router", "threshold:0.5,max_k=8")
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
        self.assertRegex(r.stderr, r"  layer    tokens  experts each   unused   dropped  busiest experts\n")
        layers = self.measure("--stats")["routing"]
        self.assertEqual([l["mean_experts_per_token"] for l in layers], [2] * 4)
        self.assertNotIn("routing", self.measure())

    def test_bad_sweeps_run_nothing(self):
        for sweep, code, words in (("k=1:2:1", 2, ["--sweep", "threshold, topk, gamma, resident"]),
                                   ("topk=1:2", 2, ["NAME=FROM:TO:STEP"]), ("topk=1:x:1", 2, ["topk=1:x:1"]),
                                   ("topk=2:1:1", 2, ["FROM at most TO"]), ("topk=1:2:0", 2, ["STEP above 0"]),
                                   ("gamma=0:1:0.0001", 2, ["1000"]), ("gamma=0:1e300:1e-300", 2, ["1000"]), ("gamma=nan:1:1", 2, ["gamma=nan"]),
                                   ("threshold=0.5:1.5:0.5", 1, ["0..1", "1.5"]), ("topk=1:99:98", 1, ["99"])):
            self.fails(code, "perplexity", MODEL, "-p", TEXT, "--sweep", sweep, contains=words)
        self.fails(2, "perplexity", MODEL, "-p", TEXT, "--sweep", "gamma=1:2:1", "--router", "gamma=1",
                   contains=["gamma"])


if __name__ == "__main__":
    main()
