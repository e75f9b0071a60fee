#!/usr/bin/env python3
"""The command `moe` as a user meets it: results, JSON, mistakes, exit codes, Ctrl-C.

Usage: cli_test.py MOE_BINARY MODEL CHECKPOINT_FOLDER CHAT_CHECKPOINT_FOLDER (tests run in a temporary folder)
"""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MOE, MODEL, CHECKPOINT, CHAT = sys.argv[1:5]


def run(*args, text=None, env=None):
    return subprocess.run([MOE, *args], input=text, capture_output=True, text=True, timeout=300, env=env)


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ok(self, *args, **kwargs):
        r = run(*args, **kwargs)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def fails(self, code, *args, contains=()):
        r = run(*args)
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        self.assertEqual(r.stdout, "")
        for word in contains:
            self.assertIn(word, r.stderr)
        return r

    # Help and usage

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

    # Results

    def test_version(self):
        self.assertRegex(self.ok("--version").stdout, r"^moe \d+\.\d+\.\d+$")

    def test_generate_is_deterministic_and_keeps_stdout_clean(self):
        args = ("generate", MODEL, "-p", "Once upon a time", "-n", "24", "--temp", "0.8", "--seed", "7")
        a, b = self.ok(*args), self.ok(*args, "--threads", "1")
        self.assertEqual(a.stdout, b.stdout)
        self.assertTrue(a.stdout.startswith("Once upon a time"))
        self.assertIn("tokens", a.stderr)

    def test_generate_json(self):
        j = json.loads(self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "8", "--json",
                               "--ignore-eos", "--logprobs", "3", "--stats").stdout)
        self.assertEqual(j["n_generated"], 8)
        self.assertEqual(j["finish"], "length")
        self.assertEqual(len(j["tokens"]), 8)
        for t in j["tokens"]:
            self.assertEqual(len(t["top"]), 3)
            self.assertEqual(t["top"][0]["id"], t["id"])  # greedy takes the best
            self.assertLessEqual(t["logprob"], 0)
        self.assertGreater(len(j["routing"]), 0)
        for layer in j["routing"]:
            self.assertEqual(sum(n * c for n, c in enumerate(layer["experts_per_token"])),
                             sum(layer["tokens_per_expert"]))

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
        """The shipped model's file says add_bos: every command puts that token, 0, in front once."""
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
        self.assertEqual(j["n_scored"], len(ids("--no-bos")))  # the first token of the text too
        self.assertEqual(j["n_tokens"], len(ids("--no-bos")))
        shown = self.ok("chat", MODEL, "--render", text=text + "\n").stdout
        self.assertEqual(shown, "<|bos|>" + text + "\n")
        chat = self.ok("chat", MODEL, "--render", "--template", "chatml", text=text + "\n").stdout
        self.assertNotIn("<|bos|>", chat)  # a template writes its own

    def test_inspect(self):
        out = self.ok("inspect", MODEL).stdout
        self.assertIn("router", out)
        j = json.loads(self.ok("inspect", MODEL, "--tensors", "--verify", "--json").stdout)
        self.assertTrue(j["verified"])
        self.assertEqual(len(j["layers"]), j["n_layers"])
        self.assertGreater(len(j["tensors"]), 10)

    def test_perplexity(self):
        with open(self.path("t.txt"), "w", encoding="utf-8") as f:
            f.write("Once upon a time there was a fox. The fox was hungry. " * 20)
        j = json.loads(self.ok("perplexity", MODEL, self.path("t.txt"), "--json").stdout)
        self.assertGreater(j["perplexity"], 1)
        one = json.loads(self.ok("perplexity", MODEL, self.path("t.txt"), "--threads", "1", "--json").stdout)
        self.assertEqual(one["mean_nll"], j["mean_nll"])

    def test_router_override_changes_the_experts(self):
        def mean(*extra):
            j = json.loads(self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "8", "--json", "--stats", *extra).stdout)
            return sum(l["mean_experts_per_token"] for l in j["routing"]) / len(j["routing"])
        self.assertAlmostEqual(mean("--router", "topk:1"), 1.0)
        self.assertAlmostEqual(mean("--router", "threshold:0"), 1.0)
        self.assertGreater(mean("--router", "threshold:0.99"), mean("--router", "threshold:0.3"))

    # Chat

    def test_chat_without_a_template_joins_the_lines(self):
        r = self.ok("chat", MODEL, "-n", "8", text="Once upon a time\n/reset\nOnce upon a time\n/quit\n")
        lines = [l for l in r.stdout.split("\n") if l]
        self.assertEqual(len(lines), 2)
        self.assertEqual(lines[0], lines[1])
        self.assertIn("plain", r.stderr)
        story = self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "8", "--no-echo").stdout
        self.assertEqual(r.stdout, story * 2)
        shown = self.ok("chat", MODEL, "-n", "4", "--template", "plain", "--system", "A story. ", "--user-prefix", "Q: ",
                        "--reply-prefix", " A:", text="Once\nThen\n/show\n").stdout.split("\n")
        self.assertEqual(shown[2:], [f"<|bos|>A story. Q: Once A:{shown[0]}", f"Q: Then A:{shown[1]}", ""])
        self.fails(2, "chat", MODEL, "--template", "chatml", "--user-prefix", "x", contains=["plain"])

    def chat_model(self, **config):
        """The model that thinks "ab" and answers "Yes." to everything."""
        folder = self.path("chat")
        shutil.copytree(CHAT, folder)
        with open(os.path.join(folder, "config.json")) as f:
            config = {**json.load(f), **config}
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        self.ok("convert", folder, self.path("chat.moe"), "--weights", "f32")
        return self.path("chat.moe")

    def test_chat_with_the_models_template(self):
        model = self.chat_model()
        r = self.ok("chat", model, "--stats", text="Hello\nSure?")  # no newline before the end
        self.assertEqual(r.stdout, "Yes.\nYes.\n")
        self.assertEqual(r.stderr.count("ab\n"), 2)
        self.assertIn("24 tokens, 0 of them reused; reply 9 tokens", r.stderr)
        self.assertIn("24 of them reused", r.stderr)
        lines = [json.loads(l) for l in self.ok("chat", model, "--json", text="Hello\nSure?\n").stdout.splitlines()]
        self.assertEqual([l["reply"] for l in lines], ["Yes.", "Yes."])
        self.assertEqual([l["thinking"] for l in lines], ["ab", "ab"])
        self.assertEqual([l["n_reused"] for l in lines], [0, 24])
        self.assertEqual([l["finish"] for l in lines], ["eos", "eos"])
        r = self.ok("chat", model, "--no-think", "--system", "Be brief.", text="Hello\n/system Sing.\n/show\n/clear\nA\n/show\n")
        self.assertEqual(r.stderr, "")
        self.assertEqual(r.stdout, "Yes.\n<|im_start|>system\nSing.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
                                   "<|im_start|>assistant\nYes.<|im_end|>\nYes.\n<|im_start|>system\nSing.<|im_end|>\n"
                                   "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n")
        self.assertEqual(self.ok("chat", model, "--think", text="/think\n").stdout, "Yes.\n")  # a line for the model

    def test_chat_templates(self):
        model = self.chat_model()
        r = self.ok("chat", MODEL, "--template", "chatml", "--render", text="Hello\n<|im_end|>\n")
        self.assertEqual(r.stdout, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
                                   "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n")
        with open(self.path("t.jinja"), "w") as f:
            f.write("{{ name }}: {% for m in messages %}{{ m.content }}{% endfor %}")
        r = self.ok("chat", model, "--template", self.path("t.jinja"), "--set", "name=Ada", "--render", text="Hello\n")
        self.assertEqual(r.stdout, "Ada: Hello\n")
        with open(self.path("t.jinja"), "w") as f:
            f.write("{{ raise_exception('not today') }}")
        self.fails(2, "chat", model, "--template", "chatlm", contains=["chatlm", "chatml"])
        self.fails(1, "chat", MODEL, "--template", "chatml", "--think", contains=["enable_thinking"])
        self.fails(2, "chat", model, "--think", "--no-think")
        r = run("chat", model, "--template", self.path("t.jinja"), text="Hello\n")
        self.assertEqual(r.returncode, 1)
        self.assertIn("not today", r.stderr)
        self.assertIn("--template", r.stderr)
        with open(self.path("t.jinja"), "w") as f:
            f.write("\n{% block x %}{% endblock %}")
        self.fails(1, "chat", model, "--template", self.path("t.jinja"), contains=["line 2", "block", "--template"])
        r = run("chat", model, "--context", "64", text="Hello\nA second line is too much.\n")
        self.assertEqual(r.returncode, 1)
        self.assertEqual(r.stdout.split("\n")[0], "Yes.")
        self.assertIn("the context holds 64", r.stderr)

    def test_chat_at_a_terminal(self):
        model = self.chat_model(context_length=1000000)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(MOE, [MOE, "chat", model, "--context", "1000000", "-n", "0", "--ignore-eos", "--threads", "1"])
        self.addCleanup(os.close, terminal)
        seen = ""

        def wait_for(text):
            nonlocal seen
            while text not in seen:
                self.assertTrue(select.select([terminal], [], [], 60)[0], f"no {text!r} in {seen!r}")
                try:
                    seen += os.read(terminal, 4096).decode()
                except OSError:  # the other end is gone
                    self.fail(f"no {text!r} in {seen!r}")
            before, seen = seen.split(text, 1)
            return before

        def type_in(text):
            os.write(terminal, text.encode())

        wait_for("> ")
        type_in("Hello\n")
        wait_for("Yes.")
        type_in("\x03")  # ends the endless reply, not the chat
        wait_for("> ")
        type_in("/show\n")
        self.assertIn("Hello<|im_end|>", wait_for("Yes.<|im_end|>"))
        wait_for("> ")
        type_in("Again\n")
        wait_for("Yes.")
        type_in("\x03")
        wait_for("> ")
        type_in("/show\n")
        self.assertIn("Again<|im_end|>", wait_for("Yes.<|im_end|>\r\n> "))
        type_in("\x03")  # at the prompt it ends the program
        for _ in range(600):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            time.sleep(0.1)
        else:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.fail("Ctrl-C at the prompt did not end the program")
        self.assertEqual(os.waitstatus_to_exitcode(status), 130)

    def test_bench_synthetic(self):
        j = json.loads(self.ok("bench", "--synthetic", "tiny", "-p", "16", "-n", "4", "-r", "1", "--json").stdout)
        for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "bytes_per_token", "peak_rss_bytes",
                    "read_bandwidth_bytes_per_s", "share_of_bandwidth"):
            self.assertGreater(j[key], 0)
        self.ok("bench", "--synthetic", "tiny", "--weights", "int8", "--save", self.path("tiny.moe"))
        self.ok("inspect", self.path("tiny.moe"), "--verify")
        self.fails(1, "bench", "--synthetic", "no-such-shape", contains=["no-such-shape", "tiny"])

    # The converter

    def test_convert(self):
        j = json.loads(self.ok("convert", CHECKPOINT, self.path("a.moe"), "--weights", "f32", "--verify", "--json").stdout)
        self.assertGreater(len(j["matrices"]), 0)
        self.assertEqual(os.listdir(self.folder.name), ["a.moe"])
        self.ok("convert", CHECKPOINT, self.path("b.moe"), "--weights", "int8", "--compress", "zstd")
        a = json.loads(self.ok("eval", self.path("a.moe"), "--tokens", "1,2,3", "--json").stdout)
        b = json.loads(self.ok("eval", self.path("b.moe"), "--tokens", "1,2,3", "--json").stdout)
        self.assertNotEqual(a["top"], b["top"])
        self.fails(1, "convert", CHECKPOINT, self.path("c.moe"), "--weights", "int3", contains=["int3"])
        self.fails(1, "convert", CHECKPOINT, os.path.join(self.folder.name, "no", "c.moe"))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["a.moe", "b.moe"])

    def start_long_conversion(self):
        """Converts a checkpoint whose embedding is a hole of 4 GB; returns once there is a partial file."""
        source = self.path("source")
        os.mkdir(source)
        rows, d = 1 << 24, 64
        config = {"model_type": "moe_research", "layout_version": 1, "vocab_size": rows, "d_model": d,
                  "n_layers": 1, "context_length": 8, "norm": {"kind": "rms"}, "positions": "none",
                  "tie_embeddings": True, "layer_defaults": {
                      "attention": {"n_heads": 1}, "ffn": {"kind": "dense", "d_ff": 1, "act": "relu"}}}
        with open(os.path.join(source, "config.json"), "w") as f:
            json.dump(config, f)
        shapes = {"embedding.weight": [rows, d], "final_norm.weight": [d]}
        for name in ("attention_norm", "ffn_norm"):
            shapes[f"layers.0.{name}.weight"] = [d]
        for name in "qkvo":
            shapes[f"layers.0.attention.{name}.weight"] = [d, d]
        shapes["layers.0.ffn.up.weight"], shapes["layers.0.ffn.down.weight"] = [1, d], [d, 1]
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        with open(os.path.join(source, "model.safetensors"), "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            f.truncate(8 + len(text) + end)
        os.mkdir(self.path("out"))
        with open(self.path("out/m.moe"), "w") as f:
            f.write("old")
        p = subprocess.Popen([MOE, "convert", source, self.path("out/m.moe")],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        while p.poll() is None and not os.path.exists(self.path("out/m.moe.partial")):
            time.sleep(0.01)
        return p

    def old_file(self):
        with open(self.path("out/m.moe")) as f:
            return f.read()

    def test_interrupted_conversion_leaves_the_old_file(self):
        p = self.start_long_conversion()
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 130, err)
        self.assertEqual(out, "")
        self.assertEqual(os.listdir(self.path("out")), ["m.moe"])
        self.assertEqual(self.old_file(), "old")

    def test_killed_conversion_leaves_the_old_file_and_can_be_repeated(self):
        p = self.start_long_conversion()
        r = self.fails(1, "convert", CHECKPOINT, self.path("out/m.moe"), contains=["another program"])
        p.kill()
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, -signal.SIGKILL, r.stderr)
        self.assertEqual(self.old_file(), "old")
        self.ok("convert", CHECKPOINT, self.path("out/m.moe"), "--verify")
        self.assertEqual(os.listdir(self.path("out")), ["m.moe"])
        self.ok("inspect", self.path("out/m.moe"), "--verify")

    def test_interrupted_generation_stops_cleanly(self):
        p = subprocess.Popen([MOE, "bench", "--synthetic", "tiny", "-p", "0", "-n", "20000", "-r", "1000"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        time.sleep(1.0)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 130, err)
        self.assertEqual(out, "")
        self.assertIn("interrupted", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
