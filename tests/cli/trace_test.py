#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe trace and moe bench --routing."""

import json
import os
from collections import Counter

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

    def test_replay_equals_results_found_by_hand(self):
        # One layer of 8 experts. The prompt uses expert 0, decoding uses 0 1 2 0 3 0 1 2.
        order = [0, 1, 2, 0, 3, 0, 1, 2]
        path = self.file("t", "# n_layer=1 n_expert=8 n_expert_used=1\nphase,step,layer,slot,expert,weight\n0,0,0,0,0,1\n" +
                         "".join(f"1,{i + 1},0,0,{e},0.5\n" for i, e in enumerate(order)))
        j, found = self.budgets(path)
        self.assertEqual((j["prompt_tokens"], j["decoded_tokens"], j["uses"]), (1, 8, 8))
        self.assertEqual(j["first_uses"], 3 / 8)  # those of 1, 2 and 3
        self.assertEqual(found[0], (0, 0))
        # Room for one: LRU hits the first 0; the optimal policy does not cache 1, 2 and 3 and hits 0 three times.
        self.assertEqual(found[1], (1 / 8, 3 / 8))
        # Two: LRU hits 0 - - - - 0 - -. The optimal policy keeps 0 and then 1, and hits 0, 0, 0, 1.
        self.assertEqual(found[2], (2 / 8, 4 / 8))
        # Four: only first uses miss.
        self.assertEqual(found[4], (5 / 8, 5 / 8))
        text = self.ok("trace", path, "--budgets").stdout
        self.assertIn("1 layer of 8 experts, at most 1 per token", text)
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
        # Each token chooses the same experts, however the prompt is split.
        self.assertEqual(sorted(rows), sorted(self.rows(self.path("b.csv"))[1]))
        n_prompt = len(self.ok("tokenize", MODEL, "-p", "Once upon a time").stdout.split(","))
        self.assertEqual({(r[0], int(r[1])) for r in rows}, {("0", i) for i in range(n_prompt)} |
                         {("1", i) for i in range(n_prompt, n_prompt + 10)})
        # The same experts are counted by generate --stats.
        j = json.loads(self.ok("generate", *args, "--stats", "--json", "--ignore-eos").stdout)
        counted = [set(e for e, n in enumerate(l["tokens_per_expert"]) if n) for l in j["routing"]]
        traced = [set(int(r[4]) for r in rows if r[2] == str(l)) for l in range(4)]
        self.assertEqual(counted, traced)

    def curves(self, trace):
        self.ok("trace", trace, "--curves", self.path("curves.json"))
        with open(self.path("curves.json"), encoding="utf-8") as f:
            return json.load(f)

    def test_the_curves_are_those_of_the_trace(self):
        self.ok("trace", MODEL, "-p", "Once upon a time", "-n", "40", "-o", self.path("t.csv"))
        j = self.curves(self.path("t.csv"))
        rows = [[int(v) for v in r[:5]] for r in self.rows(self.path("t.csv"))[1]]
        budgets, _ = self.budgets(self.path("t.csv"))
        found_in = {b["share"]: b.pop("found") for b in j["budgets"]}
        self.assertEqual({k: j.pop(k) for k in budgets}, budgets)
        self.assertEqual(j.pop("trace"), self.path("t.csv"))
        self.assertEqual(j.pop("window"), 16)
        uses = Counter((r[2], r[4]) for r in rows)
        self.assertEqual(j.pop("uses_of_experts"), sorted([layer, expert, n] for (layer, expert), n in uses.items()))
        self.assertEqual(set(j), {"experts_per_token", "used_so_far", "used_lately"})
        n_tokens = len({r[1] for r in rows})
        self.assertEqual({len(v) for v in j.values()}, {n_tokens})
        self.assertEqual({len(v) for v in found_in.values()}, {40})
        each = Counter(r[1] for r in rows)
        used, found = set(), {t: [] for t in each}
        cache = []  # LRU with room for a quarter of 64 experts
        for phase, step, layer, _, expert in rows:
            found[step].append((layer, expert) in cache)
            cache = [c for c in cache if c != (layer, expert)] + [(layer, expert)]
            cache = cache[-16:]
        for t in range(n_tokens):
            self.assertAlmostEqual(j["experts_per_token"][t], each[t] / 4)
            used |= {(r[2], r[4]) for r in rows if r[1] == t}
            self.assertAlmostEqual(j["used_so_far"][t], len(used) / 64)
            recent = {(r[2], r[4]) for r in rows if t - 16 < r[1] <= t}
            self.assertAlmostEqual(j["used_lately"][t], len(recent) / 64)
        prompt = n_tokens - 40
        for i in range(40):
            window = [h for t in range(max(prompt, prompt + i - 15), prompt + i + 1) for h in found[t]]
            self.assertAlmostEqual(found_in[0.25][i], sum(window) / len(window))

    def test_curves_of_hostile_names_and_of_little(self):
        one = "# n_layer=1 n_expert=1 n_expert_used=1\nphase,step,layer,slot,expert,weight\n1,0,0,0,0,1\n"
        path = os.path.join(self.folder.name.encode(), b"a<b>&\"'\x01\xff\xc3\xa9.csv")
        with open(path, "w") as f:
            f.write(one)
        j = self.curves(os.fsdecode(path))
        self.assertTrue(j["trace"].endswith("a<b>&\"'\x01\ufffd\u00e9.csv"), j["trace"])
        self.assertEqual([j[k] for k in ("uses_of_experts", "experts_per_token", "used_so_far", "used_lately")],
                         [[[0, 0, 1]], [1], [1], [1]])
        self.assertEqual([b["found"] for b in j["budgets"]], [[0]] * 6)
        self.fails(1, "trace", os.fsdecode(path), "--curves", "/dev/full", contains=["/dev/full", "No space left on device"])
        self.fails(1, "trace", self.file("p.csv", HEAD + "0,0,0,0,1,0.5\n"), "--curves", self.path("p.json"), contains=["nothing was decoded"])
        self.assertFalse(os.path.exists(self.path("p.json")))
        self.fails(2, "trace", MODEL, "-p", "Once", "-o", self.path("no.csv"), "--curves", self.path("no.json"), contains=["record it first"])

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
        # For every token, layer 0 takes experts 3 and 1, layer 1 takes expert 2. The model has more layers and repeats these two.
        path = self.file("t.csv", HEAD + "".join(f"{p},{s},0,0,3,0.5\n{p},{s},0,1,1,0.5\n{p},{s},1,0,2,0.9\n"
                                                 for p, s in ((0, 0), (1, 1), (1, 2))))
        args = ("-p", "8", "-n", "6", "-r", "1", "--json", "--routing", path)
        j = json.loads(self.ok("bench", "--synthetic", "tiny", *args).stdout)  # its MoE layers 1 and 3 take layer 1 of the trace
        self.assertEqual(j["experts_per_token"], 1)
        self.assertEqual(j["trace_found_in_memory"], 1)
        j = json.loads(self.ok("bench", MODEL, *args).stdout)  # layers 0 and 2 take two experts, 1 and 3 one
        self.assertEqual(j["experts_per_token"], 1.5)

    def test_sessions_are_at_different_steps_of_the_trace(self):
        rows = "0,0,0,0,3,0.5\n"
        same = self.file("same.csv", HEAD + rows + "".join(f"1,{s},0,0,3,0.5\n1,{s},1,0,3,0.5\n" for s in (1, 2)))
        other = self.file("other.csv", HEAD + rows + "".join(f"1,{s},0,0,{s},0.5\n1,{s},1,0,{s},0.5\n" for s in (1, 2)))
        used = [json.loads(self.ok("bench", MODEL, "-p", "0", "-n", "4", "-r", "1", "--json", "--sessions", "2",
                                   "--routing", path).stdout)["used_bytes_per_token"] for path in (same, other)]
        self.assertGreater(used[1], used[0])  # the two sessions share no expert

    def test_routing_that_does_not_fit(self):
        many = self.file("many.csv", "# n_layer=1 n_expert=8 n_expert_used=3\nphase,step,layer,slot,expert,weight\n"
                         "1,0,0,0,1,1\n1,0,0,1,2,1\n1,0,0,2,3,1\n")
        self.fails(1, "bench", "--synthetic", "tiny", "--routing", many, contains=["up to 3 experts", "this model 2", "--router"])
        args = ("-p", "0", "-n", "2", "-r", "1", "--json")
        j = json.loads(self.ok("bench", "--synthetic", "tiny", *args, "--routing", many, "--router", "topk:3").stdout)
        self.assertEqual(j["experts_per_token"], 3)
        other = self.file("other.csv", HEAD + "1,0,0,0,1,1\n")
        self.fails(1, "bench", "--synthetic", "tiny", "--routing", other, contains=["no routing for its layer 1"])
        self.fails(1, "bench", "--synthetic", "tiny", "--routing", self.path("none"), contains=["none", "No such file"])
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["many.csv", "other.csv"])


if __name__ == "__main__":
    main()
