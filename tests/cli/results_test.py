#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The output of the commands, as text and as JSON."""

import json
import os
import shutil
import subprocess

from support import CHECKPOINT, Cli, MODEL, MOE, main


class Results(Cli):
    def test_version(self):
        self.assertRegex(self.ok("--version").stdout, r"^moe \d+\.\d+\.\d+\n(commit [0-9a-f]{12}(-dirty)?\n)?compiled by (gcc|clang) .*\n"
                         r"instruction sets [a-z0-9_, ]+; this machine runs [a-z0-9_]+\n$")

    def test_generate_is_deterministic_and_keeps_stdout_clean(self):
        args = ("generate", MODEL, "-p", "Once upon a time", "-n", "24", "--temp", "0.8", "--seed", "7")
        a, b = self.ok(*args), self.ok(*args, "--threads", "1")
        self.assertEqual(a.stdout, b.stdout)
        self.assertTrue(a.stdout.startswith("Once upon a time"))
        self.assertIn("tokens", a.stderr)

    def test_a_failed_write_is_named(self):
        with open("/dev/full", "w") as full:
            r = subprocess.run([MOE, "generate", MODEL, "-p", "Once upon a time"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(r.returncode, 1)
        self.assertIn("stopped by a failed write", r.stderr)
        self.assertIn("cannot write to stdout", r.stderr)

    def without_ffn(self):
        """A model file without a tokenizer, of one layer that is attention alone."""
        source, n_kept = self.path("source"), 8  # the tensors are sorted: the other layers' come last
        shutil.copytree(os.path.join(CHECKPOINT, "../blocks_alone"), source)
        with open(os.path.join(source, "config.json"), "r+") as f:
            config = json.load(f)
            f.seek(0)
            f.truncate()
            json.dump({**config, "n_layers": 1, "layers": config["layers"][:1]}, f)
        with open(os.path.join(source, "model.safetensors"), "r+b") as f:
            header = list(json.loads(f.read(int.from_bytes(f.read(8), "little"))).items())[:n_kept]
            data = f.read(header[-1][1]["data_offsets"][1])
            text = json.dumps(dict(header)).encode()
            f.seek(0)
            f.truncate()
            f.write(len(text).to_bytes(8, "little") + text + data)
        self.ok("convert", source, self.path("m.moe"), "--weights", "f32")
        return self.path("m.moe")

    def test_a_refused_call_prints_no_prompt(self):
        for extra, code, words in ((["--bias", "1536:1"], 2, ["--bias '1536:1'", "0..1535"]),
                                   (["--router", "gamma=1", "--chunk", "1"], 1, ["--chunk"])):
            self.fails(code, "generate", MODEL, "-p", "Once upon a time", *extra, contains=words)
        for command in (("chat", MODEL), ("batch", MODEL, "/dev/null", self.path("out"))):
            self.fails(2, *command, "--bias", "1536:1", text="", contains=["--bias '1536:1'", "0..1535"])
        self.assertEqual(os.listdir(self.folder.name), [])
        ids = ("generate", self.without_ffn(), "--tokens")
        self.fails(2, *ids, "1,2,99", contains=["0..36", "99"])
        self.fails(1, *ids, "1,2", "--stop", "x", contains=["--stop: the model has no tokenizer"])
        self.assertRegex(self.ok(*ids, "1,2", "-n", "2").stdout, r"^1,2,\d+,\d+$")
        whole = ["1"] * 64  # of a context of 64: nothing can be generated
        self.assertEqual(self.ok(*ids, ",".join(whole)).stdout, ",".join(whole) + "\n")

    def test_statistics_of_a_model_without_ffn(self):
        r = self.ok("generate", self.without_ffn(), "--tokens", "1,2", "-n", "2", "--stats")
        self.assertIn("no layer of this model has an FFN", r.stderr)
        self.assertNotIn("busiest experts", r.stderr)

    def test_there_are_no_more_candidates_than_tokens(self):
        j = json.loads(self.ok("generate", self.without_ffn(), "--tokens", "1", "-n", "1", "--json", "--logprobs", "64").stdout)
        self.assertEqual(sorted(t["id"] for t in j["tokens"][0]["top"]), list(range(37)))

    def test_generate_json(self):
        j = json.loads(self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "8", "--json",
                               "--ignore-eos", "--logprobs", "3", "--stats").stdout)
        self.assertEqual(j["n_generated"], 8)
        self.assertEqual(j["finish"], "length")
        self.assertEqual(len(j["tokens"]), 8)
        for t in j["tokens"]:
            self.assertEqual(len(t["top"]), 3)
            self.assertEqual(t["top"][0]["id"], t["id"])  # greedy sampling takes the most probable token
            self.assertLessEqual(t["logprob"], 0)
        self.assertGreater(len(j["routing"]), 0)
        for layer in j["routing"]:
            self.assertEqual(sum(n * c for n, c in enumerate(layer["experts_per_token"])),
                             sum(layer["tokens_per_expert"]))

    def test_how_a_text_ended(self):
        once = ("generate", MODEL, "-p", "Once upon a time")
        for args, words in ((("-n", "1"), "generated 1 token ("), (("-n", "1"), "/s), stopped at the token limit\n"),
                            (("-n", "40", "--stop", " girl"), "/s), ended before a --stop text\n"),
                            (("-n", "0", "--ignore-eos"), "/s), stopped at the end of the context\n")):
            self.assertIn(words, self.ok(*once, *args).stderr)
        self.assertIn("moe: prompt 1 token (", self.ok("generate", MODEL, "--tokens", "1", "-n", "1").stderr)

    def test_stop_string_is_not_printed(self):
        whole = json.loads(self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "40", "--json").stdout)
        words = whole["text"].split(" ")
        stop = " " + words[4]
        j = json.loads(self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "40", "--json",
                               "--stop", stop).stdout)
        self.assertEqual(j["finish"], "stop")
        self.assertEqual(j["text"], whole["text"][:whole["text"].index(stop)])

    def test_prompt_from_stdin(self):
        r = self.ok("generate", MODEL, "--prompt-file", "-", "-n", "4", text="Once upon a time\n")
        self.assertTrue(r.stdout.startswith("Once upon a time"))

    def test_eval_agrees_with_generate(self):
        top = json.loads(self.ok("eval", MODEL, "-p", "Once upon a time", "--top", "5", "--json").stdout)
        gen = json.loads(self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "1", "--json", "--ignore-eos").stdout)
        self.assertEqual(top["top"][0]["id"], gen["tokens"][0]["id"])
        self.assertAlmostEqual(top["top"][0]["logprob"], gen["tokens"][0]["logprob"], places=4)
        ids = ",".join(str(i) for i in top["tokens"])
        again = json.loads(self.ok("eval", MODEL, "--tokens", ids, "--top", "5", "--json").stdout)
        self.assertEqual(again["top"], top["top"])

    def test_tokenize_round_trip(self):
        text = "The fox said: \"It's 12 o'clock!\"  \u00e9\u4e2d\U0001F642"
        ids = self.ok("tokenize", MODEL, text, "--no-bos").stdout.strip()
        self.assertEqual(self.ok("tokenize", MODEL, ids, "--decode").stdout, text + "\n")
        j = json.loads(self.ok("tokenize", MODEL, text, "--no-bos", "--json").stdout)
        self.assertEqual(",".join(map(str, j["ids"])), ids)
        self.fails(2, "tokenize", MODEL, "1,x", "--decode", contains=["x"])

    def test_a_text_begins_as_the_file_says(self):
        """The shipped model's file says add_bos: every command puts BOS, token 0, in front once."""
        text = "Once upon a time"
        def ids(*extra):
            return json.loads(self.ok("tokenize", MODEL, text, "--json", *extra).stdout)["ids"]
        self.assertEqual(ids(), [0, *ids("--no-bos")])
        for extra in ((), ("--no-bos",)):
            top = json.loads(self.ok("eval", MODEL, "-p", text, "--json", *extra).stdout)
            self.assertEqual(top["tokens"], ids(*extra))
            gen = json.loads(self.ok("generate", MODEL, "-p", text, "-n", "1", "--logprobs", "1", "--json", *extra).stdout)
            self.assertEqual(gen["n_prompt"], len(ids(*extra)))
            self.assertEqual(gen["tokens"][0]["id"], top["top"][0]["id"])
        with open(self.path("t.txt"), "w", encoding="utf-8") as f:
            f.write(text)
        j = json.loads(self.ok("perplexity", MODEL, self.path("t.txt"), "--json").stdout)
        self.assertEqual(j["n_scored"], len(ids("--no-bos")))  # the first token of the text is scored too
        self.assertEqual(j["n_tokens"], len(ids("--no-bos")))
        shown = self.ok("chat", MODEL, "--render", text=text + "\n").stdout
        self.assertEqual(shown, "<|bos|>" + text + "\n")
        chat = self.ok("chat", MODEL, "--render", "--template", "chatml", text=text + "\n").stdout
        self.assertNotIn("<|bos|>", chat)  # a template writes BOS itself

    def test_inspect(self):
        out = self.ok("inspect", MODEL).stdout
        self.assertIn("router topk:2, 2 sub-heads", out)
        self.assertIn("active per token at most", out)  # two sub-tokens may choose the same expert
        memory = [line for line in out.splitlines() if "memory with one session" in line]
        self.assertRegex(memory[0], r"all weights counted, read or mapped: .*[a-z] [\d.]+ [kM]?B$")
        j = json.loads(self.ok("inspect", MODEL, "--tensors", "--verify", "--json").stdout)
        self.assertTrue(j["verified"])
        self.assertEqual(len(j["layers"]), j["n_layers"])
        self.assertGreater(len(j["tensors"]), 10)

    def test_inspect_says_what_a_session_gets(self):
        self.assertNotIn("4096", self.ok("inspect", MODEL).stdout)
        self.ok("bench", "--synthetic", "tiny", "--context", "9000", "--save", self.path("long.moe"))
        self.assertRegex(self.ok("inspect", self.path("long.moe")).stdout, r"context 9000 \(a session uses 4096 .*--context\)")

    def test_inspect_shows_each_router(self):
        for folder, words in {"cosine_softmax_top2": "router cosine:2,renormalised,tau=0.2",
                              "threshold": "router threshold:0.6, at most 8 active",
                              "capacity_priority": "gamma=1.2",
                              "xmoe_stack": "3 experts of 3 sub-layers, router cosine:1,raw,tau=0.2"}.items():
            self.ok("convert", os.path.join(CHECKPOINT, "..", folder), self.path("m.moe"))
            out = self.ok("inspect", self.path("m.moe")).stdout
            self.assertIn(words, out)
            self.assertEqual(folder in ("threshold", "capacity_priority"), "active per token at most" in out)

    def test_statistics_are_a_table(self):
        args = ("generate", MODEL, "-p", "Once upon a time", "-n", "8", "--ignore-eos", "--stats")
        routing = json.loads(self.ok(*args, "--json").stdout)["routing"]
        r = self.ok(*args)
        self.assertNotIn("experts each", r.stdout)
        rows = [line.split() for line in r.stderr.splitlines()]
        start = rows.index("layer tokens experts each unused dropped positive busiest experts".split())
        self.assertEqual(len(rows), start + len(routing) + 2)  # a line per layer, and one for all of them
        for row, layer in zip(rows[start + 1:], routing):
            self.assertEqual(row[:2], [str(layer["layer"]), str(layer["n_tokens"])])
            self.assertEqual(row[2], f'{layer["mean_experts_per_token"]:.2f}')
            self.assertEqual(int(row[3]), layer["tokens_per_expert"].count(0))
            busiest = max(layer["tokens_per_expert"])
            self.assertEqual(row[5], f'{100 * layer["share_positive"]:.1f}')
            self.assertEqual(int(row[7]), layer["tokens_per_expert"].index(busiest))
            self.assertEqual(row[8], f'({100 * busiest / sum(layer["tokens_per_expert"]):.0f}')
        self.assertEqual(rows[-1][0], "all")

    def test_perplexity(self):
        with open(self.path("t.txt"), "w", encoding="utf-8") as f:
            f.write("Once upon a time there was a fox. The fox was hungry. " * 20)
        j = json.loads(self.ok("perplexity", MODEL, self.path("t.txt"), "--json").stdout)
        self.assertGreater(j["perplexity"], 1)
        one = json.loads(self.ok("perplexity", MODEL, self.path("t.txt"), "--threads", "1", "--json").stdout)
        self.assertEqual(one["mean_nll"], j["mean_nll"])

    def test_logits_that_overflow_are_an_error(self):
        shutil.copytree(CHECKPOINT, self.path("huge"))
        with open(self.path("huge/model.safetensors"), "r+b") as f:
            n = int.from_bytes(f.read(8), "little")
            begin, end = json.loads(f.read(n))["final_norm.weight"]["data_offsets"]
            f.seek(8 + n + begin)
            f.write(b"\x7f\x7f" * ((end - begin) // 2))  # 3.4e38 as BF16
        self.ok("convert", self.path("huge"), self.path("huge.moe"), "--weights", "f32")
        self.fails(1, "eval", self.path("huge.moe"), "--tokens", "1,2,3", contains=["logit of token", "not a finite number"])

    def test_perplexity_with_a_capacity(self):
        with open(self.path("t.txt"), "w", encoding="utf-8") as f:
            f.write("Once upon a time there was a fox. The fox was hungry. " * 40)  # more than a chunk of 256
        j = json.loads(self.ok("perplexity", MODEL, self.path("t.txt"), "--router", "gamma=1", "--json").stdout)
        self.assertGreater(j["perplexity"], 1)
        self.assertGreater(j["n_scored"], 512)
        self.fails(1, "perplexity", MODEL, self.path("t.txt"), "--router", "gamma=1", "--chunk", "64", contains=["--chunk", "64"])

    def test_chunk_changes_memory_and_no_result(self):
        for args in (("generate", "-n", "4", "-p", "Once upon a time"), ("eval", "-p", "Once upon a time")):
            default, one = (json.loads(self.ok(args[0], MODEL, *args[1:], "--json", *more).stdout) for more in ((), ("--chunk", "1")))
            key = "text" if args[0] == "generate" else "top"
            self.assertEqual(default[key], one[key])
        small, large = (json.loads(self.ok("inspect", MODEL, "--json", "--chunk", n).stdout)["memory"] for n in ("16", "512"))
        self.assertLess(small["activations"], large["activations"])
        for command in ("generate", "chat", "eval", "perplexity", "bench"):
            self.assertIn("--chunk", self.ok(command, "--help").stdout)
        self.fails(2, "eval", MODEL, "--tokens", "1", "--chunk", "5000", contains=["--chunk"])

    def test_router_override_changes_the_experts(self):
        def mean(*extra):
            j = json.loads(self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "8", "--json", "--stats", *extra).stdout)
            return sum(l["mean_experts_per_token"] for l in j["routing"]) / len(j["routing"])
        self.assertAlmostEqual(mean("--router", "topk:1"), 1.0)
        self.assertAlmostEqual(mean("--router", "threshold:0"), 1.0)
        self.assertGreater(mean("--router", "threshold:0.99"), mean("--router", "threshold:0.3"))


if __name__ == "__main__":
    main()
