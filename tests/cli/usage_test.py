#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Help, wrong usage and exit codes of the command."""

import glob
import json
import os
import re
import subprocess

from support import CHECKPOINT, Cli, MODEL, MOE, main

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


class Usage(Cli):
    def test_help_names_every_command(self):
        out = self.ok("--help").stdout
        for command in ("generate", "chat", "convert", "inspect", "perplexity", "tokenize", "eval", "bench", "trace"):
            self.assertIn(command, out)
            self.assertIn("--help", self.ok(command, "--help").stdout)

    def test_wrong_usage_is_2(self):
        self.fails(2, contains=["generate"])
        self.fails(2, "frobnicate", contains=["frobnicate", "convert"])
        self.fails(2, "--frobnicate", contains=["--frobnicate"])
        self.fails(2, "generate")
        self.fails(2, "generate", MODEL, "--no-such-option")
        self.fails(2, "generate", MODEL, "-p", "x", "--temp", "warm")
        self.fails(2, "generate", MODEL, contains=["-p TEXT", "-f FILE"])
        self.fails(2, "inspect", MODEL, "--memory", "lots", contains=["lots"])
        self.fails(2, "bench", contains=["--synthetic"])
        self.fails(2, "eval", MODEL, contains=["--tokens"])

    def test_names_that_are_nearly_right(self):
        for args, guess in [(("genrate",), "generate"), (("perplexty", MODEL), "perplexity"),
                            (("generate", MODEL, "--promt", "x"), "--prompt"),
                            (("generate", MODEL, "-p", "x", "--temperature", "1"), "--temp"),
                            (("generate", MODEL, "-p", "x", "-seed=1"), "--seed"),
                            (("inspect", "--tensor", MODEL), "--tensors"), (("--hlep",), "--help")]:
            r = self.fails(2, *args, contains=[f"did you mean '{guess}'?"])
            self.assertRegex(r.stderr, r"\nSee 'moe.* --help'\.")
        r = self.fails(2, "generate", MODEL, "-p", "x", "--wibble", contains=["unknown option '--wibble'"])
        self.assertNotIn("did you mean", r.stderr)

    def test_help_for_the_words_of_options(self):
        for word in ("help", "version"):
            self.assertEqual(self.ok("help", word).stdout, self.ok("--help").stdout)

    def test_help_for_what_is_no_command(self):
        for args in (("frobnicate", "--help"), ("frobnicate", "x", "-h"), ("--help", "frobnicate"), ("help", "frobnicate"),
                     ("--version", "frobnicate")):
            r = self.fails(2, *args, contains=["unknown command 'frobnicate'; one of: ", "See 'moe --help'."])
            self.assertEqual(r.stdout, "")
        self.fails(2, "genrate", "--help", contains=["did you mean 'generate'?"])
        self.fails(2, "--hlep", "--help", contains=["did you mean '--help'?"])

    def test_values_are_refused_before_anything_runs(self):
        for option, value in [("--seed", "18446744073709551616"), ("--seed", "-1"), ("--seed", "1e3"),
                              ("--temp", "nan"), ("--temp", "warm"), ("--temp", "101"), ("--top-p", "nan"),
                              ("--top-p", "0"), ("--min-p", "inf"), ("--min-p", "1"), ("--repetition-penalty", "nan"), ("--top-k", "1.5"),
                              ("--logprobs", "65"), ("--router", ""), ("--context", "0"), ("-n", "many")]:
            shown = "--max-tokens" if option == "-n" else option
            self.fails(2, "generate", self.path("none.moe"), "-p", "x", option, value, contains=[shown, value])
        self.fails(2, "generate", self.path("none.moe"), "-p", "x", "--logprobs", "2", contains=["--json"])
        self.ok("generate", MODEL, "-p", "x", "-n", "1", "--seed", "18446744073709551615")
        for router in ("garbage", "topk:2,min_k=5", "topk:2,max_k=3", "topk:0", "topk:17"):
            for command in (("generate", "-p", "x"), ("inspect",)):
                self.fails(2, command[0], MODEL, *command[1:], "--router", router, contains=[f"--router {router}: "])
        self.ok("inspect", MODEL, "--router", "threshold:0.5,min_k=1,max_k=3")

    def test_flags_take_no_value(self):
        for command, flag in (("inspect", "--json"), ("generate", "--stats")):
            for value in ("7", "no"):
                self.fails(2, command, f"{flag}={value}", MODEL, contains=[f"moe: {flag}: it takes no value"])

    def test_nothing_is_ignored(self):
        """An option that would change nothing is an error, of one option or of two that do not go together."""
        text, ids, new = ("-p", "x"), ("--tokens", "1"), self.path("new")
        for args, words in [(("batch", MODEL, "in", new, "--json"), ["unknown option '--json'"]),
                            (("embed", MODEL, *text, "--json"), ["unknown option '--json'"]),
                            (("inspect", MODEL, "--lazy"), ["unknown option '--lazy'"]),
                            (("generate", MODEL, *text, "--no-echo", "--json"), ["--json and --no-echo cannot be combined"]),
                            (("generate", MODEL, *text, "--logprobs", "2"), ["--logprobs requires --json"]),
                            (("generate", MODEL, *text, "--json", "--logprobs", "0"), ["--logprobs: expected a whole number in 1..64"]),
                            (("generate", MODEL, *ids, "--special"), ["--tokens and --special cannot be combined"]),
                            (("generate", MODEL, *text, "--lazy", "--map"), ["--lazy and --map cannot be combined"]),
                            (("generate", MODEL, *text, "--device", "cpu", "--gpu-memory", "1G"), ["--gpu-memory: --device cpu uses no GPU"]),
                            (("generate", MODEL, *text, "--gpu-memory", "1G"), ["--device auto uses no GPU; name it: --device cuda"]),
                            (("tokenize", MODEL, "--decode", "1", "--special"), ["--special"]),
                            (("tokenize", MODEL, "--decode", "1", "--pieces"), ["--pieces"]),
                            (("tokenize", MODEL, "x", "--json", "--pieces"), ["--json", "--pieces"]),
                            (("perplexity", MODEL, *text, "--sweep", "topk=1:2:1", "--stats"), ["--stats of a --sweep requires --json"]),
                            (("perplexity", MODEL, *text, "--sweep", "topk=1:2:1", "--router", "threshold:0.5,gamma=1"),
                             ["--router threshold:0.5,gamma=1: --sweep topk replaces the rule"]),
                            (("trace", MODEL, *text, "-o", new, "--json"), ["--json requires --budgets"]),
                            (("trace", MODEL, "--curves", new, "--json"), ["--json requires --budgets"]),
                            (("convert", CHECKPOINT, new, "--list", "--json"), ["--list and --json cannot be combined"]),
                            (("bench", MODEL, "-p", "0", "-n", "0"), ["-p 0 and -n 0 leave nothing to measure"]),
                            (("bench", MODEL, "-n", "0", "-d", "4"), ["--depth is that of decoding"]),
                            (("bench", MODEL, "-n", "0", "--sessions", "2"), ["--sessions decode together"])]:
            self.fails(2, *args, contains=words)
        for command in ("generate", "eval", "score", "translate"):
            self.fails(2, command, MODEL, *ids, "--no-bos", contains=["--no-bos", "--tokens", "cannot be combined"])
        for command in (("generate", MODEL, *text), ("batch", MODEL, "in", new)):
            for option, value in (("--top-k", "3"), ("--top-p", "0.5"), ("--min-p", "0.5")):
                self.fails(2, *command, option, value, contains=[f"{option} requires --temp"])
        for option in (("--threads", "1"), ("-n", "4"), ("--router", "topk:1"), text, ("-o", new), ("--verbose",)):
            self.fails(2, "trace", MODEL, "--budgets", *option, contains=["--budgets and --curves read a trace"])
        for option in (("-n", "4"), ("--json",), ("--threads", "1"), ("--kv", "int8")):
            self.fails(2, "bench", "--synthetic", "tiny", "--save", new, *option, contains=["--save writes a model and stops"])
        self.ok("generate", MODEL, *text, "-n", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0")
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_a_file_without_a_name_is_a_wrong_command_line(self):
        for args, name in [(("inspect", ""), "MODEL"), (("tokenize", "", "x"), "MODEL"), (("trace", "", "--budgets"), "MODEL"),
                           (("bench", ""), "MODEL"), (("bench", MODEL, "--routing", ""), "--routing"),
                           (("bench", "--synthetic", "tiny", "--save", ""), "--save"), (("convert", "", "x"), "SRC"),
                           (("convert", CHECKPOINT, ""), "DST"), (("batch", MODEL, "", "x"), "IN"), (("batch", MODEL, "x", ""), "OUT"),
                           (("generate", MODEL, "-f", ""), "--file"), (("perplexity", MODEL, ""), "FILE"),
                           (("generate", MODEL, "-p", "x", "--gpu-memory", ""), "--gpu-memory")]:
            self.fails(2, *args, contains=[f"moe: {name}: must not be empty"])

    def test_what_is_read_is_not_written(self):
        model, text, trace = self.path("m.moe"), self.path("t.txt"), self.path("t.csv")
        os.symlink(os.path.abspath(MODEL), model)
        with open(text, "w") as f:
            f.write("The fox")
        self.ok("trace", model, "-f", text, "-n", "2", "-o", trace)
        for args, what in [(("embed", model, "-f", text, "-o", model), "the model"), (("embed", model, "-f", text, "-o", text), "the text"),
                           (("trace", model, "-f", text, "-o", MODEL), "the model"), (("trace", model, "-f", text, "-o", text), "the text"),
                           (("trace", trace, "--curves", trace), "the trace")]:
            self.fails(2, *args, contains=[f"{args[-1]}: this is {what}; expected another file"])
        self.ok("inspect", model, "--verify")
        self.ok("trace", trace, "--budgets")
        with open(text) as f:
            self.assertEqual(f.read(), "The fox")

    def test_a_trace_that_cannot_be_written_is_refused_first(self):
        self.fails(1, "trace", MODEL, "-p", "x", "-n", "2", "-o", self.path("no/t"), contains=["no/t: there is no folder"])
        self.fails(1, "trace", MODEL, "-p", "x", "-n", "2", "-o", "/dev/full", contains=["/dev/full: cannot be written: No space left"])

    def test_what_reads_a_model_without_running_it_takes_no_machine(self):
        for option in (("--threads", "1"), ("--device", "cpu"), ("--memory", "1G"), ("--map",)):
            self.fails(2, "tokenize", MODEL, "x", *option, contains=[f"unknown option '{option[0]}'"])

    def test_whole_numbers_are_decimal(self):
        j = json.loads(self.ok("generate", MODEL, "-p", "x", "-n", "010", "--ignore-eos", "--json", "--seed", "010").stdout)
        self.assertEqual((j["n_generated"], j["seed"]), (10, 10))
        self.fails(2, "generate", MODEL, "-p", "x", "-n", "0x10", contains=["0x10"])

    def test_how_a_file_is_read(self):
        for command in (("generate", "-p", "x", "-n", "1"), ("perplexity", "-p", "Once upon a time"), ("eval", "-p", "x"),
                        ("inspect",), ("tokenize", "-p", "x"), ("bench", "-p", "1", "-n", "1", "-r", "1")):
            for how in ("auto", "buffered"):
                self.ok(command[0], MODEL, *command[1:], "--io", how)
            self.fails(2, command[0], MODEL, *command[1:], "--io", "fast", contains=["--io", "fast", "direct"])
        self.fails(2, "inspect", MODEL, "--io", "direct", "--map", contains=["--io direct", "--map"])
        # Files in /proc cannot be read with O_DIRECT.
        self.fails(1, "inspect", "/proc/cpuinfo", "--io", "direct", contains=["/proc/cpuinfo", "O_DIRECT"])

    def test_output_that_cannot_be_written_is_an_error(self):
        for args in (("--help",), ("tokenize", MODEL, "x"), ("inspect", MODEL, "--json")):
            with open("/dev/full", "w") as full:
                r = subprocess.run([MOE, *args], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual((r.returncode, r.stderr), (1, "moe: cannot write to stdout\n"))

    def test_help_has_one_style(self):
        for command in ("generate", "chat", "convert", "inspect", "perplexity", "tokenize", "eval", "bench", "trace"):
            out = self.ok(command, "--help").stdout
            self.assertIn(f"Usage: moe {command} ", out)
            self.assertNotRegex(out, r"INT|FLOAT|REQUIRED|Excludes|=\d|\[\d| - \d|default:")
            self.assertLessEqual(max(map(len, out.splitlines())), 100)
        out = self.ok("generate", "--help").stdout
        self.assertIn("-n, --max-tokens N ", out)
        self.assertIn("(default 128)", out)
        headings = [l for l in out.splitlines() if l.endswith(":") and not l.startswith(" ")]
        self.assertEqual(headings, ["Arguments:", "Options:", "Sampling:", "Context and routing:", "Machine:", "Output:"])

    def test_a_value_that_is_refused_is_2(self):
        """Malformed, or out of range: of any range, or of the model's."""
        text, ids, to = ("-p", "x"), ("--tokens", "1,1536"), (CHECKPOINT, self.path("x.moe"))
        for args, words in [(("generate", MODEL, *text, "--isa", "mmx"), ["--isa: expected auto, ", "'mmx'"]),
                            (("generate", MODEL, *text, "--device", "cuda:x"), ["--device: expected auto, cpu, cuda or cuda:N"]),
                            (("generate", MODEL, *text, "--router", "magic:3"), ["--router magic:3: "]),
                            (("generate", MODEL, *text, "--bias", "1536:1"), ["0..1535"]),
                            (("generate", MODEL, *ids), ["token 1536: expected an id in 0..1535"]),
                            (("eval", MODEL, *ids), ["token 1536"]), (("score", MODEL, *ids), ["token 1536"]),
                            (("tokenize", MODEL, "--decode", "1536"), ["token 1536"]),
                            (("perplexity", MODEL, *text, "--sweep", "topk=17:18:1"), ["--router topk:17: ", "1..16"]),
                            (("chat", MODEL, "--set", "name"), ["--set: expected NAME=VALUE, found 'name'"]),
                            (("convert", *to, "--weights", "int3"), ["--weights: expected auto", "int3"]),
                            (("convert", *to, "--set", "*"), ["--set: expected PATTERN=FORMAT"]),
                            (("convert", *to, "--set", "*=int3"), ["--set: expected auto, ", "'int3'"]),
                            (("convert", *to, "--set", "*=:a9"), ["--set: expected f32, a8", "'a9'"]),
                            (("bench", "--synthetic", "none"), ["--synthetic: expected tiny, ", "'none'"])]:
            self.fails(2, *args, contains=words)
        for command in (("generate", *text), ("chat",), ("inspect",), ("perplexity", *text), ("eval", *text), ("score", *text),
                        ("embed", *text), ("bench",), ("trace", *text, "-o", self.path("t")), ("batch", "/dev/null", self.path("o"))):
            for cap in ((), ("--memory", "1G")):
                self.fails(2, command[0], MODEL, *command[1:], "--context", "513", *cap,
                           contains=["moe: --context 513: expected 1..512, the context of this model"])
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_a_value_that_only_a_checkpoint_can_refuse_is_1(self):
        to = (CHECKPOINT, self.path("x.moe"))
        for option, wrong, of_checkpoint in (("--ignore-key", "", "frob"), ("--set", "=int8", "frob=int8")):
            self.fails(2, "convert", *to, option, wrong, contains=[option])
            self.fails(1, "convert", *to, option, of_checkpoint, contains=["frob"])
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_what_the_machine_or_the_model_cannot_do_is_1(self):
        for args in [("--device", "cuda"), ("--kv", "latent"), ("--memory", "100K"), ("--memory", "1000T")]:
            self.fails(1, "generate", MODEL, "-p", "x", *args)
        with open(self.path("ids"), "w") as f:
            f.write("1,x")
        self.fails(1, "tokenize", MODEL, "--decode", "-f", self.path("ids"), contains=["ids: 'x' is not a token id"])

    def test_every_option_is_in_a_document(self):
        text = ""
        for page in (*glob.glob(os.path.join(ROOT, "docs/*.md")), os.path.join(ROOT, "README.md")):
            with open(page, encoding="utf-8") as f:
                text += f.read()
        documented = set(re.findall(r"--[a-z][a-z0-9-]*", text))
        commands = self.ok("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
        for command in re.findall(r"^  (\w+) ", commands, re.M):
            options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", self.ok(command, "--help").stdout, re.M))
            self.assertEqual(options - documented, set(), command)

    def test_placeholders_say_what_is_expected(self):
        for command, option in (("translate", "--search-end count|step|bound"), ("embed", "--pooling mean|first|last"), ("chat", "--set NAME=VALUE"),
                                ("batch", "--set NAME=VALUE"), ("convert", "--set PATTERN=FORMAT"), ("generate", "--io auto|direct|buffered")):
            self.assertIn(option, self.ok(command, "--help").stdout)

    def test_each_help_ends_with_an_example_that_its_options_allow(self):
        commands = self.ok("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
        for command in re.findall(r"^  (\w+) ", commands, re.M):
            text = self.ok(command, "--help").stdout
            last = text.rstrip("\n").split("\n")[-1]
            self.assertRegex(last, rf"^Example: .*\bmoe {command}\b", command)
            for option in re.findall(r" (--?[a-z][\w-]*)", last.split(f"moe {command}", 1)[1].split("|")[0].split("&&")[0]):
                self.assertRegex(text, rf"(?m)(^  |, ){option}\b", command)

    def test_one_name_means_one_thing(self):
        # -o and --output name a file to write, --stop a text to stop at, wherever they are.
        commands = self.ok("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
        for command in re.findall(r"^  (\w+) ", commands, re.M):
            text = self.ok(command, "--help").stdout
            for name in re.findall(r"^  (.*(?:-o|--output)\b.*?)(?:  |$)", text, re.M):
                self.assertEqual(name, "-o, --output FILE", command)
            for name in re.findall(r"^  (.*--stop\b.*?)(?:  |$)", text, re.M):
                self.assertEqual(name, "--stop TEXT", command)

    def test_errors_are_1_and_name_the_thing(self):
        self.fails(1, "inspect", self.path("none.moe"), contains=["none.moe"])
        with open(self.path("bad.moe"), "wb") as f:
            f.write(b"not a model" * 100)
        self.fails(1, "inspect", self.path("bad.moe"), contains=["bad.moe", "not a model file"])
        self.fails(1, "convert", MODEL, self.path("x.moe"), contains=[MODEL, "folder"])
        self.fails(1, "generate", MODEL, "-p", "x", "--device", "cuda", contains=["cuda"])
        self.fails(1, "generate", MODEL, "-p", "x", "--memory", "100K", contains=["KV"])
        self.fails(1, "convert", self.path("nothing"), self.path("x.moe"), contains=["nothing"])
        self.assertFalse(os.path.exists(self.path("x.moe")))


if __name__ == "__main__":
    main()
