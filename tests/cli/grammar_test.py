#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Texts that satisfy a grammar: generate, chat and batch; drafts and threads change nothing."""

import json
import os

from support import CHAT, Cli, MODEL, main

SCHEMA = {"type": "object",
          "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
                         "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "maxItems": 2}},
          "required": ["name", "age"], "additionalProperties": False}


class Grammars(Cli):
    def schema(self, schema=SCHEMA):
        with open(self.path("schema.json"), "w", encoding="utf-8") as f:
            json.dump(schema, f)
        return self.path("schema.json")

    def check(self, text):
        made = json.loads(text)
        self.assertLessEqual({"name", "age"}, set(made))
        self.assertLessEqual(set(made), {"name", "age", "tags"})
        self.assertLessEqual(len(made["name"]), 9)
        self.assertIn(made["age"], range(100))

    def generated(self, *options, n=400):
        out = self.ok("generate", MODEL, "-p", "Once", "--json", "-n", str(n), *options)
        return json.loads(out.stdout)

    def test_a_schema_holds_for_every_seed_thread_and_draft(self):
        path = self.schema()
        for seed in range(1, 6):
            how = ["--json-schema", path, "--temp", "1.5", "--seed", str(seed)]
            made = self.generated(*how)
            self.assertEqual(made["finish"], "eos")
            self.check(made["text"])
            for more in (["--threads", "2"], ["--draft", "8"], ["--draft", "1"], ["--chunk", "1"]):
                self.assertEqual(self.generated(*how, *more)["text"], made["text"], more)

    def test_forced_text_is_drafted(self):
        made = self.generated("--regex", " the same words [0-9]", "--draft", "8")
        self.assertRegex(made["text"], "^ the same words [0-9]$")
        self.assertGreater(made["n_drafted"], 0)

    def test_grammars_and_expressions(self):
        with open(self.path("list.gbnf"), "w", encoding="utf-8") as f:
            f.write('root ::= item+\nitem ::= "- " [a-z]{2,4} "\\n"')
        made = self.generated("--grammar", self.path("list.gbnf"), "--temp", "1", "--seed", "3", n=30)
        self.assertRegex(made["text"] + "\n", r"^(- [a-z]{2,4}\n)*(-?( [a-z]*)?\n)$")
        self.assertRegex(self.generated("--regex", "(yes|no)!")["text"], "^(yes|no)!$")

    def test_an_end_before_the_grammar_allows_it_is_told(self):
        self.assertEqual(self.generated("--json-schema", self.schema(), n=2)["finish"], "length")

    def test_a_batch_gives_the_texts_of_single_runs(self):
        path = self.schema()
        lines = [{"prompt": p, "seed": i, "temperature": 1.5, "max_tokens": 400} for i, p in enumerate(("Once", "The fox", "A"))]
        with open(self.path("in.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        self.ok("batch", MODEL, self.path("in.jsonl"), self.path("out.jsonl"), "--json-schema", path, "--sessions", "3")
        with open(self.path("out.jsonl"), encoding="utf-8") as f:
            results = [json.loads(line) for line in f]
        for line, result in zip(lines, results, strict=True):
            self.assertEqual(result["finish"], "eos")
            self.check(result["text"])
            alone = self.ok("generate", MODEL, "-p", line["prompt"], "--json", "-n", "400", "--temp", "1.5", "--seed", str(line["seed"]),
                            "--json-schema", path)
            self.assertEqual(json.loads(alone.stdout)["text"], result["text"])

    def test_lines_of_a_batch_have_formats_of_their_own(self):
        with open(self.schema(), encoding="utf-8") as f:
            schema = json.load(f)
        one = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}
        five = {"type": "json_schema", "json_schema": {"schema": {"const": 5}}}
        formats = [one, None, five, {"type": "text"}, {"type": "json_schema", "json_schema": {"schema": {"unevaluatedItems": {}}}}, {"type": "json_schema"},
                   {"type": "json_object"}]
        with open(self.path("in.jsonl"), "w", encoding="utf-8") as f:
            for i, form in enumerate(formats):
                f.write(json.dumps({"prompt": "Once", "seed": i, "temperature": 1.5, "max_tokens": 20 if form in (None, {"type": "text"}) else 400, "response_format": form}) + "\n")
        for sessions in ("1", "4"):
            self.ok("batch", MODEL, self.path("in.jsonl"), self.path("out.jsonl"), "--sessions", sessions)
            with open(self.path("out.jsonl"), encoding="utf-8") as f:
                found = [json.loads(line) for line in f]
            self.check(found[0]["text"])
            alone = self.ok("generate", MODEL, "-p", "Once", "--json", "-n", "400", "--temp", "1.5", "--seed", "0", "--json-schema", self.schema())
            self.assertEqual(json.loads(alone.stdout)["text"], found[0]["text"])
            self.assertEqual(found[2]["text"].strip(), "5")
            for i in (1, 3):
                alone = self.ok("generate", MODEL, "-p", "Once", "--json", "-n", "20", "--temp", "1.5", "--seed", str(i))
                self.assertEqual(json.loads(alone.stdout)["text"], found[i]["text"])
            self.assertIn("'response_format': JSON schema: #/unevaluatedItems", found[4]["error"])
            self.assertIn("json_schema.schema' is missing", found[5]["error"])
            self.assertEqual(found[6]["text"].lstrip()[0], "{")

    def test_a_batch_lines_format_and_the_command_lines_grammar(self):
        schema = {"enum": ["yes", "no"]}
        formats = [{"type": "text"}, None, {"type": "json_schema", "json_schema": {"schema": schema, "strict": None}},
                   {"type": "json_object", "schema": schema}, {"type": "text", "x": 1},
                   {"type": "json_schema", "json_schema": {"schema": schema}, "schema": schema},
                   {"type": "json_schema", "json_schema": {"schema": schema, "x": 1}}]
        with open(self.path("in.jsonl"), "w", encoding="utf-8") as f:
            for form in formats:
                f.write(json.dumps({"prompt": "Once", "temperature": 0, "max_tokens": 20, "response_format": form}) + "\n")
        for sessions in ("1", "3"):
            self.ok("batch", MODEL, self.path("in.jsonl"), self.path("any.jsonl"), "--sessions", sessions, "--regex", "[XYZ]{3}")
            with open(self.path("any.jsonl"), encoding="utf-8") as f:
                found = [json.loads(line) for line in f]
            os.remove(self.path("any.jsonl"))
            free = json.loads(self.ok("generate", MODEL, "-p", "Once", "--json", "-n", "20", "--temp", "0").stdout)
            self.assertEqual(found[0]["text"], free["text"])
            self.assertRegex(found[1]["text"], "^[XYZ]{3}$")
            self.assertIn(json.loads(found[2]["text"]), ("yes", "no"))
            for result, words in zip(found[3:], ("'response_format': unknown key 'schema'", "'response_format': unknown key 'x'",
                                                 "'response_format': unknown key 'schema'", "'response_format.json_schema': unknown key 'x'"), strict=True):
                self.assertIn(words, result["error"])

    def test_a_chat_thinks_freely_and_answers_in_the_grammar(self):
        self.ok("convert", CHAT, self.path("chat.moe"), "--weights", "f32")
        out = self.ok("chat", self.path("chat.moe"), "-p", "Hello", "--json", "--regex", "No[!?]", "--temp", "0")
        reply = json.loads(out.stdout.splitlines()[0])
        self.assertRegex(json.dumps(reply), '"No[!?]"')
        self.assertIn("ab", json.dumps(reply))  # the thinking

    def test_bad_grammars_are_refused_before_anything_is_printed(self):
        for option, text, words in (("--json-schema", '{"unevaluatedItems": {}}', "#/unevaluatedItems: this keyword is not supported"), ("--json-schema", "{", "JSON, byte 1"),
                                    ("--json-schema", "false", "no text satisfies it"), ("--grammar", "root ::= x", 'no rule named "x"')):
            with open(self.path("bad"), "w", encoding="utf-8") as f:
                f.write(text)
            status = 2 if words.startswith("no text") else 1  # the value is in order, but not possible
            self.fails(status, "generate", MODEL, "-p", "Once", option, self.path("bad"), contains=(words,))
        self.fails(1, "generate", MODEL, "-p", "Once", "--regex", "*", contains=("byte 0",))
        self.fails(1, "generate", MODEL, "-p", "Once", "--json-schema", self.path("missing.json"), contains=("missing.json",))
        self.fails(2, "generate", MODEL, "-p", "Once", "--regex", "a", "--grammar", "b", contains=("--grammar",))


if __name__ == "__main__":
    main()
