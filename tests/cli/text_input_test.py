#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every command takes text in the same ways: -p TEXT, -f FILE, -f - for stdin, and as an argument."""

import json
import os
import signal
import subprocess

from support import CHAT, CHECKPOINT, Cli, MODEL, MOE, Terminal, main

TEXT = "Once upon a time"


class TextInput(Cli):
    def forms(self, positional=None):
        """Each way to pass TEXT: the arguments, and the content of stdin."""
        with open(self.path("t.txt"), "w") as f:
            f.write(TEXT)
        forms = [(["-p", TEXT], None), (["--prompt", TEXT], None), (["-f", self.path("t.txt")], None),
                 (["--file", self.path("t.txt")], None), (["-f", "-"], TEXT), (["--prompt-file", self.path("t.txt")], None),
                 (["--prompt-file", "-"], TEXT)]
        return forms + ([positional] if positional else [])

    def same(self, command, positional=None, *more, key):
        """Checks that `key` of the JSON is the same for every way to pass the text."""
        found = [json.loads(self.ok(command, MODEL, *args, *more, "--json", text=text).stdout)[key]
                 for args, text in self.forms(positional)]
        for value in found[1:]:
            self.assertEqual(value, found[0])

    def test_every_command_reads_text_in_every_form(self):
        self.same("generate", None, "-n", "4", key="text")
        self.same("eval", None, "--top", "2", key="top")
        self.same("tokenize", ([TEXT], None), key="ids")
        self.forms()
        self.same("perplexity", ([self.path("t.txt")], None), key="mean_nll")
        self.same("perplexity", (["-"], TEXT), key="mean_nll")

    def test_a_signal_ends_the_wait_for_a_pipe(self):
        os.mkfifo(self.path("pipe"))
        for has_writer in (False, True):  # opening it waits without one, reading with one
            if has_writer:
                self.addCleanup(os.close, os.open(self.path("pipe"), os.O_RDWR))
            for args in (["generate", MODEL, "-f", self.path("pipe")],
                         ["batch", MODEL, self.path("pipe"), self.path("out")],
                         ["bench", MODEL, "--routing", self.path("pipe")]):
                with self.subTest(args=args, has_writer=has_writer):
                    p = subprocess.Popen([MOE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    self.addCleanup(p.wait)
                    self.addCleanup(p.kill)
                    self.wait_for_its_handler(p)
                    p.send_signal(signal.SIGTERM)
                    out, err = p.communicate(timeout=60)
                    self.assertEqual((p.returncode, out, err), (130, "", "moe: interrupted\n"))

    def test_closed_standard_streams_are_errors(self):
        for command, closed, error in ((("generate", MODEL, "-f", "-"), 0, "stdin: Bad file descriptor"),
                                       (("batch", MODEL, "-", self.path("out")), 0, "stdin: Bad file descriptor"),
                                       (("generate", MODEL, "-p", TEXT, "-n", "4"), 1, "cannot write to stdout")):
            r = subprocess.run([MOE, *command], stdout=None if closed == 1 else subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               timeout=60, preexec_fn=lambda fd=closed: os.close(fd), check=False)
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertIn(error, r.stderr)

    def test_generate_continues_ids(self):
        ids = self.ok("tokenize", MODEL, TEXT).stdout.strip()
        by_text = json.loads(self.ok("generate", MODEL, "-p", TEXT, "-n", "6", "--json").stdout)
        by_ids = json.loads(self.ok("generate", MODEL, "--tokens", ids, "-n", "6", "--json").stdout)
        self.assertEqual(by_ids["tokens"], by_text["tokens"])
        self.assertEqual(",".join(map(str, by_ids["prompt_tokens"])), ids)
        self.assertNotIn("prompt", by_ids)
        self.assertEqual(self.ok("generate", MODEL, "--tokens", ids, "-n", "6").stdout,
                         self.ok("generate", MODEL, "-p", TEXT, "-n", "6").stdout)
        self.fails(2, "generate", MODEL, "-p", "x", "--tokens", "1", contains=["cannot be combined"])
        self.fails(2, "generate", MODEL, "--tokens", "1,x", contains=["'x'", "token id"])
        self.fails(2, "generate", MODEL, "--tokens", "1", "--special", contains=["--special"])
        self.fails(2, "generate", MODEL, "--tokens", "1,1536", "--json", contains=["0..1535", "1536"])

    def test_guesses_change_nothing_but_the_speed(self):
        for how in ((), ("--temp", "1", "--seed", "3")):
            plain = self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "200", *how)
            guessed = self.ok("generate", MODEL, "-p", "Once upon a time", "-n", "200", "--draft", "8", *how)
            self.assertEqual(guessed.stdout, plain.stdout)
            self.assertNotIn("guesses", plain.stderr)
            self.assertRegex(guessed.stderr, r", \d+ of [1-9]\d* drafted tokens accepted, ")
        self.fails(2, "generate", MODEL, "-p", "Once", "--draft", "17", contains=["--draft: expected a whole number in 0..16, found '17'"])
        self.fails(1, "generate", MODEL, "-p", "Once", "--draft", "1", "--router", "gamma=2", contains=["--draft", "capacity"])

    def test_a_model_without_a_tokenizer_speaks_ids(self):
        model = self.path("ids.moe")
        self.ok("convert", CHECKPOINT, model)
        self.fails(1, "generate", model, "-p", "x", contains=["no tokenizer", "--tokens"])
        made = json.loads(self.ok("generate", model, "--tokens", "3,1,4", "-n", "5", "--json").stdout)
        ids = [t["id"] for t in made["tokens"]]
        self.assertEqual(len(ids), 5)
        r = self.ok("generate", model, "--tokens", "3,1,4", "-n", "5")
        self.assertEqual(r.stdout, ",".join(map(str, [3, 1, 4] + ids)) + "\n")
        self.assertEqual(self.ok("generate", model, "--tokens", "3,1,4", "-n", "5", "--no-echo").stdout,
                         ",".join(map(str, ids)) + "\n")

    def test_line_ends_at_the_end_of_a_prompt_file_are_no_text(self):
        ids = self.ok("tokenize", MODEL, TEXT).stdout
        self.assertEqual(self.ok("tokenize", MODEL, "-f", "-", text=TEXT + "\r\n\n").stdout, ids)
        r = self.ok("generate", MODEL, "-f", "-", "-n", "1", "--ignore-eos", "--json", text=TEXT + "\n")
        self.assertEqual(json.loads(r.stdout)["prompt"], TEXT)

    def test_a_pipe_needs_no_option(self):
        for command, *args in (["generate", "-n", "3"], ["eval"], ["tokenize"], ["perplexity", "--json"], ["score"], ["embed"]):
            named = self.ok(command, MODEL, "-f", "-", *args, text=TEXT + "\n").stdout
            piped = self.ok(command, MODEL, *args, text=TEXT + "\n").stdout
            if command == "perplexity":  # one figure is a speed
                named, piped = (json.loads(out)["perplexity"] for out in (named, piped))
            self.assertEqual(piped, named, command)
        # An argument in place of a text leaves the pipe alone.
        self.assertEqual(self.ok("generate", MODEL, "--tokens", "1,2", "-n", "3", text=TEXT).stdout,
                         self.ok("generate", MODEL, "--tokens", "1,2", "-n", "3").stdout)
        self.fails(1, "tokenize", MODEL, "--decode", text="1,x", contains=["stdin: 'x' is not a token id"])
        terminal = Terminal(self, "tokenize", MODEL)
        terminal.wait_for("a text is required: -p TEXT, -f FILE or a pipe")
        self.assertEqual(terminal.status(), 2)

    def test_no_text_says_what_to_do(self):
        for command in ("generate", "eval", "tokenize", "perplexity", "score"):
            for args in ([], ["-p", ""]) if command != "generate" else ([],):
                self.fails(2, command, MODEL, *args, contains=["-p TEXT", "-f FILE"])
            for file, name in (("/dev/null", "/dev/null"), ("-", "stdin")):
                self.fails(1, command, MODEL, "-f", file, text="", contains=[f"{name}: holds no text", "-p TEXT", "-f FILE"])
            self.fails(2, command, MODEL, "-p", "x", "-f", "y", contains=["cannot be combined"])
            self.fails(1, command, MODEL, "-f", self.path("none.txt"), contains=["none.txt: No such file"])
            self.fails(1, command, MODEL, "-f", self.folder.name, contains=["Is a directory"])
        self.fails(2, "eval", MODEL, "-p", "x", "--tokens", "1", contains=["cannot be combined"])

    def test_an_empty_text_begins_with_the_begin_of_text_token(self):
        alone = json.loads(self.ok("generate", MODEL, "-p", "", "-n", "8", "--json").stdout)
        self.assertEqual((alone["prompt"], alone["n_prompt"], alone["n_generated"]), ("", 1, 8))
        self.assertEqual(alone["text"], json.loads(self.ok("generate", MODEL, "--tokens", "0", "-n", "8", "--json").stdout)["text"])
        lines = '{"prompt": ""}\n'
        found = json.loads(self.ok("batch", MODEL, "-", "-", "-n", "8", text=lines).stdout)
        self.assertEqual([found[k] for k in ("text", "finish", "n_prompt")], [alone[k] for k in ("text", "finish", "n_prompt")])
        self.fails(2, "generate", MODEL, "-p", "", "--no-bos", contains=["the text is empty"])
        self.ok("convert", CHAT, self.path("m.moe"))
        self.fails(2, "generate", self.path("m.moe"), "-p", "", contains=["the text is empty"])
        found = json.loads(self.ok("batch", self.path("m.moe"), "-", "-", "-n", "8", text=lines).stdout)
        self.assertIn("the text has no tokens", found["error"])

    def test_reading_ends_at_a_stated_size(self):
        for command, most in (("generate", "64 MiB"), ("tokenize", "64 MiB"), ("perplexity", "256 MiB")):
            self.fails(1, command, MODEL, "-f", "/dev/zero", contains=["/dev/zero", most])
            self.assertIn(most, self.ok(command, "--help").stdout)
        self.fails(1, "chat", MODEL, "--template", "/dev/zero", contains=["64 MiB"])
        with open("/dev/zero", "rb") as zeros:
            r = subprocess.run([MOE, "chat", MODEL, "--template", "plain"], stdin=zeros, capture_output=True, timeout=120)
        self.assertEqual((r.returncode, r.stdout), (1, b""))
        self.assertIn(b"stdin: a line does not end within 64 MiB", r.stderr)


if __name__ == "__main__":
    main()
