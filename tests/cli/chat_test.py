#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe chat: templates, commands, a terminal, Ctrl-C."""

import json
import os
import shutil
import subprocess

from support import CHAT, MODEL, MOE, Cli, Terminal, main, run


class Chat(Cli):
    def test_chat_without_a_template_joins_the_lines(self):
        r = self.ok("chat", MODEL, "-n", "8", "--temp", "0", text="Once upon a time\n/reset\nOnce upon a time\n/quit\n")
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
        """A model file of the checkpoint that thinks "ab" and answers "Yes." to every question."""
        folder = self.path("chat")
        shutil.copytree(CHAT, folder)
        with open(os.path.join(folder, "config.json")) as f:
            config = {**json.load(f), **config}
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        self.ok("convert", folder, self.path("chat.moe"), "--weights", "f32")
        return self.path("chat.moe")

    def sampling_model(self, **generation):
        """The same with a generation_config.json."""
        if not os.path.exists(self.path("chat")):
            self.chat_model()
        with open(self.path("chat/generation_config.json"), "w") as f:
            json.dump(generation, f)
        self.converted = self.ok("convert", self.path("chat"), self.path("chat.moe"), "--weights", "f32")
        return self.path("chat.moe")

    def settings(self, model, *args):
        sampling = json.loads(self.ok("chat", model, "--json", *args, text="Hello\n").stdout)["sampling"]
        return [sampling[key] for key in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")]

    def test_the_checkpoints_sampling(self):
        model = self.sampling_model(do_sample=True, temperature=0.6, top_k=20, top_p=0.9, typical_p=0.5, eos_token_id=257)
        self.assertEqual(self.converted.stderr, "moe: warning: generation_config.json: not taken over, as sampling here has no "
                                                "such setting: typical_p 0.5\n")
        self.assertEqual(self.settings(model), [0.6, 20, 0.9, 0, 1])
        self.assertEqual(self.settings(model, "--top-k", "0"), [0.6, 0, 0.9, 0, 1])  # one option changes one setting
        self.assertEqual(self.settings(model, "--temp", "1.5", "--min-p", "0.1"), [1.5, 20, 0.9, 0.1, 1])
        self.assertEqual(self.settings(model, "--temp", "0")[0], 0)
        r = self.ok("chat", model, "--seed", "7", text="Hello\n")
        self.assertTrue(r.stderr.startswith("moe: sampling: temperature 0.6, top-k 20, top-p 0.9 (the model file's); --seed 7 repeats it\n"), r.stderr)
        r = self.ok("chat", model, "--seed", "7", "--top-p", "1", text="Hello\n")
        self.assertIn("moe: sampling: temperature 0.6, top-k 20 (the model file's, and options); --seed 7 repeats it\n", r.stderr)
        r = self.ok("chat", model, "--temp", "0", text="Hello\n")
        self.assertIn("moe: sampling: the most probable token each time (the model file's, and options)\n", r.stderr)
        self.assertIn("  the checkpoint's sampling: temperature 0.6, top-k 20, top-p 0.9\n", self.ok("inspect", model).stdout)
        self.assertEqual(json.loads(self.ok("inspect", model, "--json").stdout)["sampling"],
                         {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0, "repetition_penalty": 1,
                          "repetition_window": 64, "in_file": True})
        # A file that says only how to penalise repetitions: the rest is not the file's.
        r = self.ok("chat", self.sampling_model(repetition_penalty=1.5), "--seed", "7", text="Hello\n")
        self.assertIn("min-p 0.05, repetition-penalty 1.5 (default; the penalty is the model file's); --seed 7", r.stderr)
        # A verified file, and one that says not to sample.
        self.ok("convert", self.path("chat"), self.path("v.moe"), "--verify")
        model = self.sampling_model(do_sample=False, temperature=0.6)
        self.assertEqual(self.settings(model)[0], 0)
        self.fails(2, "chat", model, "--top-k", "5", text="Hello\n", contains=["--top-k requires --temp"])

    def test_sampling_without_a_checkpoints_settings(self):
        self.assertEqual(self.settings(self.chat_model()), [0.8, 0, 0.95, 0.05, 1])
        inspected = json.loads(self.ok("inspect", MODEL, "--json").stdout)["sampling"]
        self.assertEqual((inspected["temperature"], inspected["in_file"]), (0.8, False))
        self.assertNotIn("checkpoint's sampling", self.ok("inspect", MODEL).stdout)
        first = self.ok("chat", MODEL, "-n", "30", text="Once upon a time\n")
        seed = first.stderr.split("--seed ")[1].split()[0]
        self.assertIn(f"temperature 0.8, top-p 0.95, min-p 0.05 (default); --seed {seed} repeats it\n", first.stderr)
        self.assertEqual(self.ok("chat", MODEL, "-n", "30", "--seed", seed, text="Once upon a time\n").stdout, first.stdout)
        others = {self.ok("chat", MODEL, "-n", "30", "--seed", str(s), text="Once upon a time\n").stdout for s in range(3)}
        self.assertGreater(len(others), 1)

    def test_generate_stays_greedy_and_says_how_to_sample(self):
        args = ("generate", MODEL, "-p", "Once upon a time", "-n", "4")
        self.assertNotIn("--temp", self.ok(*args).stderr)  # not into a pipe
        hint = "moe: the most probable token was taken each time; --temp 0.8 --top-p 0.95 --min-p 0.05 samples\r\n"
        Terminal(self, *args).wait_for(hint)
        for more in ("--temp", "0"), ("--json",):
            at = Terminal(self, *args, *more)
            at.status()
            self.assertNotIn("was taken", at.rest())

    def test_unknown_commands_are_not_sent(self):
        model = self.chat_model()
        r = self.ok("chat", model, "--temp", "0", text='/foo bar\n/clear now\n/shift it\n"""/foo bar"""\n/etc/fstab?\n/ x\n')
        self.assertEqual(r.stdout, "Yes.\nYes.\nYes.\n")
        r2 = self.ok("chat", model, "--temp", "0", text="/quit it\n/exit \nHello\n")
        self.assertEqual(r2.stdout, "")
        self.assertIn("moe: /quit takes no text", r2.stderr)
        for note in ('unknown command /foo (/help); quote it to send it: """/foo bar"""',
                     '/clear takes no text; quote it to send it: """/clear now"""',
                     '/shift takes no text; quote it to send it: """/shift it"""'):
            self.assertIn(f"moe: {note}\n", r.stderr)
        # The template can think: Qwen3's words.
        self.assertEqual(self.ok("chat", model, text="/think why\n/no_think\n").stdout, "Yes.\nYes.\n")
        r = self.ok("chat", MODEL, "--template", "chatml", "--render", text="/think\n/no_think\n")
        self.assertEqual(r.stdout, "")
        self.assertIn("unknown command /no_think (/help)", r.stderr)
        with open(self.path("t.jinja"), "w") as f:
            f.write("{% if '/deep' in messages[-1].content %}deep{% endif %}</s>[/inst]{{ messages[-1].content }}")
        r = self.ok("chat", model, "--template", self.path("t.jinja"), "--render", text="/deep\n/s\n/inst\n/dee\n")
        self.assertEqual(r.stdout, "deep</s>[/inst]/deep\n")
        self.assertEqual(r.stderr.count("unknown command"), 3)

    def test_lines_that_end_with_crlf(self):
        def shown(text):
            return subprocess.run([MOE, "chat", MODEL, "--template", "chatml", "--render"], input=text.encode(), capture_output=True,
                                  check=True).stdout.decode()

        text = 'Hello\na\\\nb\n"""\nc\n"""\n/system s\n/clear\nd'
        self.assertEqual(shown(text.replace("\n", "\r\n") + "\r"), shown(text))
        self.assertNotIn("\r", shown("a\r\n"))
        self.assertIn("a\rb<|im_end|>", shown("a\rb\n"))

    def test_a_session_says_what_it_resumes(self):
        model, file = self.chat_model(), self.path("talk")
        r = self.ok("chat", model, "--session", file, text="Hello?\n")
        self.assertIn(f"moe: {file} is new: the conversation is saved there at the end\n", r.stderr)
        os.utime(file, (1e9, 1e9))
        r = self.ok("chat", model, "--session", file, text="", env={**os.environ, "TZ": "UTC"})
        self.assertIn(f"moe: {file} goes on: 2 messages, saved 2001-09-09 01:46, 34 tokens\n", r.stderr)
        with open(file, "rb") as f:
            head = f.readline()
        with open(file, "wb") as f:
            f.write(head)  # the messages alone
        self.assertIn(", to be read again\n", self.ok("chat", model, "--session", file, text="").stderr)

    def test_the_oldest_turns_make_room(self):
        model = self.chat_model()  # one token per byte
        text = "".join(f"Question {i}\n" for i in range(12)) + "/show\n"
        args = ("chat", model, "--context", "300", "--system", "Be brief.", "-n", "40")
        r = run(*args, text=text)
        self.assertEqual(r.returncode, 1)
        self.assertIn("the context holds 300; --context can be at most 512 with this model; --shift, or /shift here, drops the "
                      "oldest turns\n", r.stderr)
        self.assertTrue(r.stdout.startswith("Yes.\n"))
        for shifted in (self.ok(*args, "--shift", text=text), self.ok(*args, text="/shift\n" + text)):
            shown = shifted.stdout.split("Yes.\n" * 12)[1]
            self.assertTrue(shown.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nQuestion "), shown)
            self.assertIn("Question 10<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\nQuestion 11<", shown)
            self.assertNotIn("Question 0<", shown)
            self.assertRegex(shifted.stderr, r"moe: the context of 300 tokens is full: the oldest \d+ messages of \d+ dropped, the rest is read again")
        lines = [json.loads(l) for l in self.ok(*args, "--shift", "--json", text=text.replace("/show\n", "")).stdout.splitlines()]
        self.assertEqual([l["reply"] for l in lines], ["Yes."] * 12)
        self.assertTrue(all(l["n_prompt"] <= 300 for l in lines))
        dropped = [l["n_dropped"] for l in lines]
        self.assertGreater(max(dropped), 2)  # a quarter of the context at once
        self.assertEqual(sum(n % 2 for n in dropped), 0)  # whole turns
        at = dropped.index(max(dropped))
        self.assertLess(lines[at]["n_reused"], 60)  # the system prompt
        self.assertGreater(lines[at]["n_reused"], 20)
        # The same as a conversation that begins there.
        kept = "".join(f"Question {i}\n" for i in range(sum(dropped[:at + 1]) // 2, at + 1))
        fresh = [json.loads(l) for l in self.ok(*args, "--json", text=kept).stdout.splitlines()]
        self.assertEqual(fresh[-1]["n_prompt"], lines[at]["n_prompt"])
        # A message that is too long alone, and a template that wants its first turn.
        r = run(*args, "--shift", text="Hello\n" + "x" * 400 + "\n")
        self.assertEqual(r.returncode, 1)
        self.assertIn("the context holds 300", r.stderr)
        self.assertNotIn("--shift", r.stderr)
        with open(self.path("t.jinja"), "w") as f:
            f.write("{% if messages[0].content != 'Question 0' %}{{ raise_exception('where is 0') }}{% endif %}"
                    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>assistant\n")
        r = run("chat", model, "--context", "300", "-n", "40", "--shift", "--template", self.path("t.jinja"),
                text="".join(f"Question {i}\n" for i in range(30)))
        self.assertEqual(r.returncode, 1)
        self.assertIn("the template refuses what dropping the oldest turns would leave", r.stderr)
        self.assertIn("where is 0", r.stderr)
        self.assertNotIn(" dropped, the rest", r.stderr)

    def test_colours(self):
        model = self.chat_model()

        def at_terminal(**env):
            at = Terminal(self, "chat", model, "--threads", "1", "-p", "Hello", **env)
            at.wait_for("Yes.\r\n")
            at.wait_for("> ")
            at.type("\x04")
            at.status()
            at.rest()
            return at.all

        shown = at_terminal(TERM="xterm")
        self.assertIn("\x1b[2mab\x1b[0m", shown)  # thinking
        self.assertRegex(shown, r"\x1b\[2mmoe: sampling: [^\x1b]*\x1b\[0m")  # a note
        if "MOE_TEST_NO_EDITOR" not in os.environ:  # which colours the prompt and what is typed
            self.assertRegex(shown, "\x1b\\[1;32m> [^\x1b]*\x1b")
            self.assertGreater(shown.rindex("\x1b[0m"), shown.rindex("\x1b[1;32m"))
        for env in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}):
            shown = at_terminal(**env)
            self.assertNotRegex(shown, r"\x1b\[[0-9;]*m")
            self.assertIn("thinking: ab\r\n", shown)
        self.assertIn("\x1b[2m", at_terminal(TERM="xterm", NO_COLOR=""))  # empty: not set
        r = self.ok("chat", model, text="Hello\n", env={**os.environ, "TERM": "xterm"})
        self.assertNotIn("\x1b", r.stdout + r.stderr)
        self.assertIn("thinking: ab\n", r.stderr)

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
        r = self.ok("chat", model, "--no-think", "--system", "Be brief.", "--temp", "0", text="Hello\n/system Sing.\n/show\n/clear\nA\n/show\n")
        self.assertEqual(r.stderr, "moe: sampling: the most probable token each time\n")
        self.assertEqual(r.stdout, "Yes.\n<|im_start|>system\nSing.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
                                   "<|im_start|>assistant\nYes.<|im_end|>\nYes.\n<|im_start|>system\nSing.<|im_end|>\n"
                                   "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n")
        self.assertEqual(self.ok("chat", model, "--think", text="/think\n").stdout, "Yes.\n")  # not a command: goes to the model
        self.assertEqual(self.ok("chat", model, text="/clear\n/exit\nHello\n").stdout, "")
        r = self.ok("chat", model, text="/show\n/help\nHello\n")
        self.assertEqual(r.stdout, "Yes.\n")
        self.assertIn("moe: nothing to show yet\n  /clear, /reset   starts again\n", r.stderr)
        for line in ("  /help            lists these commands\n", ': """/like this"""\n'):
            self.assertIn(line, r.stderr)
        self.fails(1, "chat", model, "--session", self.path("no/c"), text="Hello\n", contains=["no/c: there is no folder"])

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
        self.fails(2, "chat", model, "--template", "", contains=["--template: must not be empty"])
        for option in ("--json", "--stats"):
            self.fails(2, "chat", model, "--render", option, contains=["--render", option])
        r = run("chat", model, "--template", self.path("t.jinja"), text="Hello\n")
        self.assertEqual(r.returncode, 1)
        self.assertIn("not today", r.stderr)
        self.assertIn("--template", r.stderr)
        with open(self.path("t.jinja"), "w") as f:
            f.write("\n{% block x %}{% endfor %}")
        self.fails(1, "chat", model, "--template", self.path("t.jinja"), contains=["line 2", "endfor", "--template"])
        with open(self.path("t.jinja"), "w") as f:
            f.write("{% for i in range(9999) %}{% for j in range(99) %}{% for k in range(99) %}{% endfor %}{% endfor %}{% endfor %}")
        r = run("chat", model, "--template", self.path("t.jinja"), text="Hello\n")
        self.assertRegex(r.stderr, r"line 1: more than \d+ (steps|items)")
        self.assertNotIn("--context", r.stderr)  # a larger context would not help
        r = run("chat", model, "--context", "64", text="Hello\nA second line is too much.\n")
        self.assertEqual(r.returncode, 1)
        self.assertEqual(r.stdout.split("\n")[0], "Yes.")
        self.assertIn("the context holds 64", r.stderr)
        self.assertRegex(r.stderr, r"--context can be at most \d+ with this model")

    def test_messages_of_several_lines(self):
        def messages(text, *args):
            shown = self.ok("chat", MODEL, "--template", "chatml", "--render", *args, text=text).stdout
            return [part.split("<|im_end|>")[0] for part in shown.split("<|im_start|>user\n")[1:]]

        self.assertEqual(messages("a\\\nb \\\n\nc\n"), ["a\nb \n", "c"])
        self.assertEqual(messages('"""\n/clear\n  x\\\n\ny\n"""\nz\n'), ["/clear\n  x\\\n\ny", "z"])
        self.assertEqual(messages('"""a\nb"""\n"""one"""\n""""""\n"""\n\n\n"""\n"\n'), ["a\nb", "one", "\n", '"'])
        self.assertEqual(messages('"""a\n'), ["a"])  # the end of input ends a message
        self.assertEqual(messages("a\\"), ["a"])
        self.assertEqual(messages("/clear\n/system a\\\nb\nc\n/quit\nd\n"), ["c"])
        self.assertEqual(messages("b\n", "-p", "/clear\na"), ["/clear\na", "b"])
        shown = self.ok("chat", MODEL, "--template", "chatml", "--render", text="/system a\\\nb\nc\n").stdout
        self.assertIn("<|im_start|>system\na\nb<|im_end|>", shown)
        model = self.chat_model()
        self.assertEqual(self.ok("chat", model, "-p", "Hello", text="").stdout, "Yes.\n")
        self.assertEqual(self.ok("chat", model, "--no-think", "-p", "Hello", text="Sure?\n").stdout, "Yes.\nYes.\n")
        self.fails(2, "chat", model, "-p", "", contains=["--prompt: must not be empty"])

    def test_advice_when_the_context_is_full_is_possible(self):
        text = "Once upon a time " * 200 + "\n"
        r = self.fails(1, "chat", MODEL, text=text)
        self.assertRegex(r.stderr, r"the conversation has \d+ tokens, the context holds 512, this model's maximum; /clear starts again")
        self.assertNotIn("--context", r.stderr)
        r = self.fails(1, "chat", MODEL, "--context", "100", text=text)
        self.assertIn("the context holds 100; --context can be at most 512 with this model", r.stderr)
        r = self.ok("chat", MODEL, "-n", "0", "--ignore-eos", text="Once upon a time\n")
        self.assertIn("moe: the context of 512 tokens is full; --shift, or /shift here, drops the oldest turns; /clear starts again\n", r.stderr)
        r = self.ok("chat", MODEL, "-n", "0", "--ignore-eos", "--context", "100", text="Once upon a time\n")
        self.assertIn("moe: the context of 100 tokens is full; --context can be at most 512 with this model; --shift, or /shift here, drops the oldest turns; /clear starts again\n", r.stderr)
        model = self.chat_model(context_length=1000000)
        r = self.ok("chat", model, "-n", "0", "--ignore-eos", "--threads", "1", text="Hello\n")
        self.assertRegex(r.stderr, r"moe: the context of \d+ tokens is full; the next message enlarges it\n")

    def test_a_conversation_goes_on_from_a_file(self):
        model, file = self.chat_model(), self.path("talk")
        both = [json.loads(l) for l in self.ok("chat", model, "--json", text="Hello?\nSure?\n").stdout.splitlines()]
        first = self.ok("chat", model, "--json", "--session", file, text="Hello?\n")
        second = json.loads(self.ok("chat", model, "--json", "--session", file, text="Sure?\n").stdout)
        self.assertEqual(json.loads(first.stdout)["reply"], both[0]["reply"])
        for key in ("reply", "n_prompt", "n_reused", "n_generated"):
            self.assertEqual(second[key], both[1][key])
        self.assertGreater(second["n_reused"], 0)
        with open(file, "rb") as f:
            head, data = f.read().split(b"\n", 1)
        self.assertEqual([m["role"] for m in json.loads(head)["messages"]], ["user", "assistant"] * 2)
        self.assertEqual([n for n in os.listdir(self.folder.name) if n.startswith(".")], [])
        # A session whose context grew is restored.
        self.ok("chat", MODEL, "-n", "4", "--session", self.path("s"), text="Once\n")
        shown = self.ok("chat", MODEL, "--session", self.path("s"), text="/show\n").stdout
        self.assertIn("Once", shown)
        self.assertEqual(self.ok("chat", MODEL, "--session", self.path("s"), text="/show\n").stdout, shown)
        self.refuses(model, file, head, data)

    def test_a_conversation_with_positions_of_a_grown_context(self):
        scaling = {"kind": "longrope", "original_context": 4096, "short_factor": [1], "long_factor": [2]}
        attention = {"n_heads": 1, "head_dim": 2, "rope": {"dims": 2, "scaling": scaling}}
        layer = {"attention": attention, "ffn": {"kind": "dense", "d_ff": 1, "act": "relu"}}
        model, file = self.chat_model(context_length=1000000, positions="rope", layer_defaults=layer), self.path("talk")
        self.ok("chat", model, "--session", file, text="word " * 900 + "\n")
        second = json.loads(self.ok("chat", model, "--json", "--session", file, text="Sure?\n").stdout)
        self.assertGreater(second["n_reused"], 4096)
        self.fails(1, "chat", model, "--session", file, "--context", "9000", text="x\n", contains=["talk: ", "context"])

    def test_what_was_answered_lasts_when_a_later_line_fails(self):
        model, file = self.chat_model(), self.path("talk")
        r = run("chat", model, "--context", "64", "--session", file, text="Hello\nA second line is too much.\n")
        self.assertEqual(r.returncode, 1)
        with open(file, "rb") as f:
            messages = json.loads(f.readline())["messages"]
        self.assertEqual([(m["role"], m["content"]) for m in messages][0], ("user", "Hello"))
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
        self.ok("chat", model, "--session", file, text="")

    def refuses(self, model, file, head, data):
        def bad(content, *words, args=()):
            with open(file, "wb") as f:
                f.write(content)
            self.fails(1, "chat", model, "--session", file, *args, text="x\n", contains=["talk: ", *words])
            with open(file, "rb") as f:
                self.assertEqual(f.read(), content)  # the file is unchanged

        good = head + b"\n" + data
        bad(good[:-1], "cut off")
        bad(good[:-1] + b"?", "checksum")
        bad(head, "first line does not end")
        bad(b"\n" + data, "not a JSON object")
        bad(b"[1]\n" + data, "not a JSON object")
        bad(b'{"moe_chat": 3}\n' + data, "versions 1 and 2", "found 3")
        bad(b'{"moe_chat": 1, "system": "", "context": 1}\n' + data, "'messages'")
        bad(b'{"moe_chat": 1, "system": "", "context": "1", "messages": []}\n' + data, "'context'")
        bad(head.replace(b'"user"', b'7') + b"\n" + data, "'role'")
        bad(b"\xff\xfe\n" + data, "not a JSON object")
        bad(good, "f16", "int8", args=["--kv", "int8"])
        with open(file, "wb") as f:
            f.write(good)
        other = self.ok("chat", MODEL, "--session", file, "-n", "2", text="x\n")
        self.assertIn("of another model file: the messages are read again", other.stderr)
        self.fails(1, "chat", model, "--session", self.folder.name, text="x\n", contains=[self.folder.name])
        self.fails(2, "chat", model, "--session", file, "--render", contains=["--session"])

    def test_a_session_file_beyond_the_limits_of_json(self):
        many = "".join(f'"{i}": 0, ' for i in range(4095))
        for name, head, words in (("deep", '"messages": ' + "[" * 100000 + "]" * 100000, "nested deeper than 64"),
                                  ("wide", '"a": {"b": {}, ' + many + '"x": 0}', "an object has more than 4096 keys"),
                                  ("most", '"a": {' + many + '"x": {"y": 0}}', "'system' is missing")):
            with open(self.path(name), "w") as f:
                f.write('{"moe_chat": 1, ' + head + "}\n")
            self.fails(1, "chat", MODEL, "--session", self.path(name), contains=[f"{name}: not a conversation of moe chat: ", words])

    def test_chat_grows_with_the_conversation(self):
        model = self.chat_model(context_length=1000000)
        text = "word " * 900 + "\n" + "Sure? " * 900 + "\nYes?\n"  # one token per byte
        turns = [json.loads(l) for l in self.ok("chat", model, "--json", text=text).stdout.splitlines()]
        fixed = [json.loads(l) for l in self.ok("chat", model, "--json", "--context", "20000", text=text).stdout.splitlines()]
        self.assertGreater(turns[1]["n_prompt"], 4096)
        for field in ("reply", "thinking", "finish", "n_prompt", "n_generated"):
            self.assertEqual([t[field] for t in turns], [t[field] for t in fixed])
        reused = [t["n_reused"] > 0 for t in turns]
        self.assertFalse(all(reused[1:]))  # a larger session evaluates the whole conversation again
        self.assertTrue(any(reused[1:]))   # and is then reused
        r = run("chat", model, "--context", "4096", text=text)
        self.assertEqual(r.returncode, 1)
        self.assertIn("--context can be at most 1000000", r.stderr)

    def test_stop_strings_are_not_looked_for_in_the_header_of_a_channel(self):
        folder = self.path("channels")
        shutil.copytree(CHAT, folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                text = f.read()
            for tag, token in (("</think>", "<|message|>"), ("<think>", "<|channel|>")):
                text = text.replace(tag, token).replace(f'"{token}",\n"special": false', f'"{token}",\n"special": true')
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        self.ok("convert", folder, self.path("c.moe"), "--weights", "f32")

        def reply(*args):
            return json.loads(self.ok("chat", self.path("c.moe"), "--json", *args, text="Hello\n").stdout)

        whole = reply()
        self.assertEqual((whole["reply"], whole["thinking"], whole["finish"]), ("", "Yes.", "eos"))  # the channel "ab"
        for stop in ("ab", "a", "bYes"):
            self.assertEqual(reply("--stop", stop)["thinking"], "Yes.")
        stopped = reply("--stop", "s.")
        self.assertEqual((stopped["thinking"], stopped["finish"]), ("Ye", "stop"))

    def tool_model(self):
        """A model that says "Ok!" with two calls, and "Yes." to their results; and its tools."""
        self.ok("convert", os.path.join(os.path.dirname(CHAT), "tools"), self.path("tools.moe"), "--weights", "f32")
        yes = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
        with open(self.path("tools.json"), "w") as f:
            json.dump([{"type": "function", "function": {"name": "weather", "description": "Weather of a city"}},
                       {"type": "function", "function": {"name": "f", "parameters": yes}}], f)
        return self.path("tools.moe"), "--temp", "0", "--tools", self.path("tools.json")

    CALLS = 'moe: the model calls weather {"city": "Zürich", "days": 2}\nmoe: the model calls clock {}\n'

    def test_results_of_tools_are_the_next_lines(self):
        model = self.tool_model()
        r = self.ok("chat", *model, text='Weather?\n18 "degrees"\n\nSure?\n"""\n/quit\nit\n"""\n/nothing\n/show\n')
        self.assertEqual(r.stderr.count(self.CALLS), 2)
        self.assertTrue(r.stdout.startswith("Ok!\nYes.\nOk!\n<|im_start|>system\n"), r.stdout)
        results = [part.split("\n</tool_response>")[0] for part in r.stdout.split("<tool_response>\n")[1:]]
        self.assertEqual(results, ['18 "degrees"', "", "/quit\nit"])
        self.assertIn("unknown command /nothing", r.stderr)
        # Commands take calls back.
        r = self.ok("chat", *model, text="Weather?\n18\n/clear\nAgain?\n/quit\n")
        self.assertEqual((r.stdout, r.stderr.count(self.CALLS)), ("Ok!\nOk!\n", 2))

    def test_calls_of_tools_in_json(self):
        lines = [json.loads(line) for line in self.ok("chat", *self.tool_model(), "--json", text="Weather?\n18\n19\n").stdout.splitlines()]
        self.assertEqual([line["reply"] for line in lines], ["Ok!", "Yes."])
        self.assertEqual([(c["type"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in lines[0]["tool_calls"]],
                         [("function", "weather", {"city": "Zürich", "days": 2}), ("function", "clock", {})])
        self.assertEqual(lines[1]["tool_calls"], [])
        self.assertNotIn("tool_calls", json.loads(self.ok("chat", self.path("tools.moe"), "--json", text="Hi\n").stdout))

    def test_the_choice_of_a_tool_is_for_messages(self):
        model = self.tool_model()
        r = self.ok("chat", *model, "--tool-choice", "f", "--json", text="Weather?\n18\nAnd?\n")
        first, answer, second = (json.loads(line) for line in r.stdout.splitlines())
        self.assertEqual((answer["reply"], answer["tool_calls"]), ("Yes.", []))
        for reply in first, second:
            (call,) = reply["tool_calls"]
            self.assertEqual(reply["reply"], "")
            self.assertEqual((call["function"]["name"], list(json.loads(call["function"]["arguments"]))), ("f", ["yes"]))
        required = json.loads(self.ok("chat", *model, "--tool-choice", "required", "--json", text="Weather?\n").stdout)
        self.assertRegex(required["reply"], "^(<tool_call>|$)")  # the last call may be cut
        self.assertLessEqual({c["function"]["name"] for c in required["tool_calls"]}, {"f", "weather"})
        self.assertTrue(required["tool_calls"])
        r = self.ok("chat", *model, "--tool-choice", "f", text="Weather?\n")
        self.assertEqual(r.stdout, "")  # no text, no line
        self.assertRegex(r.stderr, r'moe: the model calls f \{\s*"yes":\s*(true|false)\s*\}\n')
        self.fails(2, "chat", *model, "--tool-choice", "g", text="x\n", contains=["--tool-choice: tools: there is none with the name 'g'"])

    def test_tools_that_are_refused(self):
        model = self.tool_model()
        self.fails(2, "chat", model[0], "--tool-choice", "auto", text="x\n", contains=["--tools"])
        self.fails(2, "chat", *model, "--regex", "x", text="x\n", contains=["--tools"])
        self.fails(1, "chat", *model[:-1], self.path("none.json"), text="x\n", contains=["none.json"])
        for tools in "{", "[5]", '{"name": "f"}':
            with open(self.path("bad.json"), "w") as f:
                f.write(tools)
            self.fails(2, "chat", *model[:-1], self.path("bad.json"), text="x\n", contains=["--tools: "])
        for tools in "", " \n":
            with open(self.path("bad.json"), "w") as f:
                f.write(tools)
            self.fails(2, "chat", *model[:-1], self.path("bad.json"), text="x\n", contains=["--tools: expected a JSON list", "found nothing"])
        with open(self.path("bad.json"), "w") as f:
            f.write("[]")
        self.fails(2, "chat", *model[:-1], self.path("bad.json"), "--tool-choice", "required", text="x\n",
                   contains=["--tool-choice: the list of --tools, ", "is empty"])
        self.fails(1, "chat", MODEL, "--template", "plain", *model[1:], text="x\n", contains=["no tools"])

    def test_a_conversation_with_tools_goes_on_from_a_file(self):
        model = (*self.tool_model(), "--session", self.path("talk"))
        self.ok("chat", *model, text="Weather?\n18\n19\n")
        shown = self.ok("chat", *model, text="/show\n").stdout
        self.assertEqual(shown.count("<tool_response>"), 2)
        self.assertIn('<tool_call>{"name": "weather", "arguments": {"city": "Zürich", "days": 2}}</tool_call>', shown)
        r = self.ok("chat", *model, text="More?\n18\n")
        self.assertIn("moe: your last message is not saved: calls in its reply have no results\n", r.stderr)
        r = self.ok("chat", *model, text="/show\n")
        self.assertEqual(r.stdout, shown)
        self.assertIn("goes on: 5 messages", r.stderr)
        with open(self.path("talk"), "rb") as f:
            head, data = f.read().split(b"\n", 1)
        self.assertTrue(head.startswith(b'{"moe_chat":2,'), head)
        with open(self.path("talk"), "wb") as f:
            f.write(head.replace(b'"members":{', b'"members":5,"x":{', 1) + b"\n" + data)
        self.fails(1, "chat", *model, text="x\n", contains=["'members' is not a JSON object"])

    def test_tools_at_a_terminal(self):
        at = Terminal(self, "chat", *self.tool_model(), TERM="dumb")
        at.wait_for("> ")
        at.type("Weather?\n")
        at.wait_for('Ok!\r\nmoe: the model calls weather {"city": "Zürich", "days": 2}\r\nmoe: the model calls clock {}\r\n')
        at.wait_for("result of weather> ")
        at.type("18 degrees\n")
        at.wait_for("result of clock> ")
        at.type("\n")
        at.wait_for("Yes.\r\n> ")
        at.type("Weather?\n")
        at.wait_for("result of weather> ")
        at.type("/show\n")
        self.assertIn("18 degrees", at.wait_for("result of weather> "))
        at.type("\x04")
        self.assertEqual(at.status(), 0)

    def test_names_of_tools_do_not_control_a_terminal(self):
        folder = self.path("hostile")
        shutil.copytree(os.path.join(os.path.dirname(CHAT), "tools"), folder)
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
            text = f.read()
        self.assertIn("weather", text)
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
            f.write(text.replace("weather", "w\\\\u001b[2J\\\\u0001é" + "x" * 50))
        model = self.tool_model()
        self.ok("convert", folder, self.path("tools.moe"), "--weights", "f32")
        for kind in "dumb", "xterm":
            at = Terminal(self, "chat", *model, TERM=kind)
            at.wait_for("> ")
            at.type("Weather?\r")
            at.wait_for("result of w\\u001b[2J\\u0001\\u00e9" + "x" * 18 + "...> ")
            self.assertNotIn("\x1b[2J", at.all)
            at.type("18\r")
            at.wait_for("result of clock> ")
            at.type("\x04")
            self.assertEqual(at.status(), 0)

    def test_chat_at_a_terminal(self):
        model = self.chat_model(context_length=1000000)
        at = Terminal(self, "chat", model, "--context", "1000000", "-n", "0", "--ignore-eos", "--threads", "1", TERM="dumb")
        at.wait_for("> ")
        at.type("Hello\n")
        at.wait_for("thinking: ab\r\nYes.")
        at.type("\x03")  # ends the reply, not the chat
        at.wait_for("> ")
        at.type("/show\n")
        self.assertIn("Hello<|im_end|>", at.wait_for("Yes.<|im_end|>"))
        at.wait_for("> ")
        at.type("Again\n")
        at.wait_for("Yes.")
        at.type("\x03")
        at.wait_for("> ")
        at.type("/show\n")
        self.assertIn("Again<|im_end|>", at.wait_for("Yes.<|im_end|>\r\n> "))
        at.type("\x03")  # ends the program at the prompt
        self.assertEqual(at.status(), 130)


if __name__ == "__main__":
    main()
