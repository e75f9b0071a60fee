#!/usr/bin/env python3
"""moe trace and bench --routing."""

import json
import os

from support import Cli, MODEL, main

HEAD = "# n_layer=2 n_expert=4 n_expert_used=2\nphase,step,layer,slot,expert,weight\n"


class Trace(Cli):
    def file(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def rows(self, path):
        with open(path) as f:
            lines = f.read().splitlines()
        self.assertEqual(lines[1], "phase,step,layer,slot,expert,weight")
        return lines[0], [line.split(",") for line in lines[2:]]

    def budgets(self, path):
        j = json.loads(self.ok("trace", path, "--budgets", "--json").stdout)
        return j, {b["experts"]: (b["lru"], b["best"]) for b in j["budgets"]}

    def test_replay_is_what_a_hand_finds(self):
        # One layer of 8 experts. Decoding uses 0 1 2 0 3 0 1 2, behind a prompt that used 0.
        order = [0, 1, 2, 0, 3, 0, 1, 2]
        path = self.file("t", "# n_layer=1 n_expert=8 n_expert_used=1\nphase,step,layer,slot,expert,weight\n0,0,0,0,0,1\n" +
                         "".join(f"1,{i + 1},0,0,{e},0.5\n" for i, e in enumerate(order)))
        j, found = self.budgets(path)
        self.assertEqual((j["prompt_tokens"], j["decoded_tokens"], j["uses"]), (1, 8, 8))
        self.assertEqual(j["first_uses"], 3 / 8)  # of 1, 2 and 3
        self.assertEqual(found[0], (0, 0))
        # One place. LRU finds the first 0; the best passes 1 and 2 through and finds 0 three times.
        self.assertEqual(found[1], (1 / 8, 3 / 8))
        # Two: LRU has 0, -, -, -, -, 0, -, -. The best keeps 0 and then 1: 0, 0, 0, 1.
        self.assertEqual(found[2], (2 / 8, 4 / 8))
        # Four: everything but first uses.
        self.assertEqual(found[4], (5 / 8, 5 / 8))
        text = self.ok("trace", path, "--budgets").stdout
        self.assertIn("1 layers of 8 experts", text)
        self.assertRegex(text, r"12\.50 % +1 +0\.125 +0\.375\n")

    def test_no_cache_beats_the_best_one_and_more_memory_never_hurts(self):
        self.ok("trace", MODEL, "-p", "Once upon a time", "-n", "60", "-o", self.path("t.csv"))
        _, found = self.budgets(self.path("t.csv"))
        self.assertTrue(all(lru <= best for lru, best in found.values()), found)
        self.assertEqual(sorted(found.values()), list(found.values()))

    def test_records_what_the_layers_chose(self):
        args = (MODEL, "-p", "Once upon a time", "-n", "10")
        self.ok("trace", *args, "-o", self.path("a.csv"))
        self.ok("trace", *args, "-o", self.path("b.csv"), "--chunk", "1", "--threads", "1")
        head, rows = self.rows(self.path("a.csv"))
        self.assertRegex(head, r"^# n_layer=4 n_expert=16 n_expert_used=[234]$")
        # However a text is cut, each token chooses the same.
        self.assertEqual(sorted(rows), sorted(self.rows(self.path("b.csv"))[1]))
        n_prompt = len(self.ok("tokenize", MODEL, "-p", "Once upon a time").stdout.split(","))
        self.assertEqual({(r[0], int(r[1])) for r in rows}, {("0", i) for i in range(n_prompt)} |
                         {("1", i) for i in range(n_prompt, n_prompt + 10)})
        # The ones that generate --stats counts.
        j = json.loads(self.ok("generate", *args, "--stats", "--json", "--ignore-eos").stdout)
        counted = [set(e for e, n in enumerate(l["tokens_per_expert"]) if n) for l in j["routing"]]
        traced = [set(int(r[4]) for r in rows if r[2] == str(l)) for l in range(4)]
        self.assertEqual(counted, traced)

    def test_a_prompt_alone(self):
        self.ok("trace", MODEL, "-p", "Once upon a time", "-n", "0", "-o", self.path("t.csv"))
        self.assertEqual({r[0] for r in self.rows(self.path("t.csv"))[1]}, {"0"})

    def test_bad_traces_are_named_with_their_line(self):
        row = "1,0,0,0,1,0.5\n"
        for text, line, words in [
                ("", 1, ["n_layer"]), (row, 1, ["# n_layer=L"]), ("# n_layer=0 n_expert=4 n_expert_used=1\n", 1, ["from 1"]),
                ("# n_layer=2 n_expert=4 n_expert_used=5\n", 1, ["n_expert_used"]),
                ("# n_layer=2 n_expert=4 n_expert_used=2\nlayer,expert\n" + row, 2, ["columns phase,step", "'layer,expert'"]),
                (HEAD, 3, ["no row"]), (HEAD + "2,0,0,0,1,0.5\n", 3, ["phase: expected 0..1, found 2"]),
                (HEAD + row + "1,0,2,0,1,0.5\n", 4, ["layer: expected 0..1, found 2"]),
                (HEAD + "1,-1,0,0,1,0.5\n", 3, ["step", "-1"]),
                (HEAD + "1,0,0,0,4,0.5\n", 3, ["expert: expected 0..3, found 4"]),
                (HEAD + "1,0,0,0,99999999999999999999,0.5\n", 3, ["expert: expected 0..3"]),
                (HEAD + "1,0,0,1,1,0.5\n", 3, ["slot: expected 0, found 1"]),
                (HEAD + row + "1,0,0,1,1,0.5\n", 4, ["expert 1", "twice"]),
                (HEAD + row + row, 4, ["slot: expected 1, found 0"]),
                (HEAD + "1,0,0,0,1,nan\n", 3, ["weight"]), (HEAD + "1,0,0,0,1,0.5,7\n", 3, ["weight"]),
                (HEAD + "1,0,0,0\n", 3, ["expected phase,step", "'1,0,0,0'"]), (HEAD + row + "\n" + row, 4, ["expected phase,step"]),
                (HEAD + row + "1,1,0,0,1,0.", 4, ["cut off"]), (HEAD + "1" * 5000, 3, ["longer"])]:
            path = self.file("bad.csv", text)
            self.fails(1, "trace", path, "--budgets", contains=[f"bad.csv:{line}: ", *words])
            self.fails(1, "bench", MODEL, "--routing", path, contains=[f"bad.csv:{line}: "])
        self.fails(1, "trace", self.path("none.csv"), "--budgets", contains=["none.csv", "No such file"])
        self.fails(1, "trace", MODEL, "--budgets", contains=["stories.moe:1: "])
        self.fails(1, "trace", self.file("prompt.csv", HEAD + "0,0,0,0,1,0.5\n"), "--budgets", contains=["nothing was decoded"])

    def test_what_cannot_be_traced(self):
        self.fails(2, "trace", MODEL, "-p", "x", contains=["-o FILE"])
        self.fails(2, "trace", MODEL, "-o", self.path("t.csv"), contains=["-p TEXT"])
        self.fails(1, "trace", MODEL, "-p", "x", "-o", self.path("no/such/t.csv"), contains=["no/such/t.csv"])
        self.fails(1, "trace", MODEL, "-p", "x", "-n", "1", "-o", "/dev/full", contains=["/dev/full"])

    def test_a_model_is_routed_as_the_trace_was(self):
        # Every token of every layer takes experts 3 and 1; the trace has fewer layers than the model.
        path = self.file("t.csv", HEAD + "".join(f"{p},{s},0,0,3,0.5\n{p},{s},0,1,1,0.5\n{p},{s},1,0,2,0.9\n"
                                                 for p, s in ((0, 0), (1, 1), (1, 2))))
        args = ("-p", "8", "-n", "6", "-r", "1", "--json", "--routing", path)
        j = json.loads(self.ok("bench", "--synthetic", "tiny", *args).stdout)  # MoE layers 1 and 3: the trace's second
        self.assertEqual(j["experts_per_token"], 1)
        self.assertEqual(j["trace_found_in_memory"], 1)
        j = json.loads(self.ok("bench", MODEL, *args).stdout)  # layers 0 and 2 take two, 1 and 3 one
        self.assertEqual(j["experts_per_token"], 1.5)

    def test_routing_that_does_not_fit(self):
        many = self.file("many.csv", "# n_layer=1 n_expert=8 n_expert_used=3\nphase,step,layer,slot,expert,weight\n"
                         "1,0,0,0,1,1\n1,0,0,1,2,1\n1,0,0,2,3,1\n")
        self.fails(2, "bench", "--synthetic", "tiny", "--routing", many, contains=["up to 3 experts", "this model 2", "--router"])
        args = ("-p", "0", "-n", "2", "-r", "1", "--json")
        j = json.loads(self.ok("bench", "--synthetic", "tiny", *args, "--routing", many, "--router", "topk:3").stdout)
        self.assertEqual(j["experts_per_token"], 3)
        other = self.file("other.csv", HEAD + "1,0,0,0,1,1\n")
        self.fails(2, "bench", "--synthetic", "tiny", "--routing", other, contains=["no choices for its layer 1"])
        self.fails(1, "bench", "--synthetic", "tiny", "--routing", self.path("none"), contains=["none", "No such file"])
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["many.csv", "other.csv"])


if __name__ == "__main__":
    main()
