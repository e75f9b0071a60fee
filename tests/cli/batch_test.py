#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe batch: results in the order of the lines, bad lines reported in place, resumption after a kill."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time

from support import CHAT, CHECKPOINT, MODEL, MOE, Cli, main

TEXTS = ["Once upon a time", "The fox was very", "A dog", "One autumn morning, Clara", "The", "In the garden"]


class Batch(Cli):
    def write(self, lines, name="in.jsonl"):
        with open(self.path(name), "wb") as f:
            for line in lines:
                f.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        return self.path(name)

    def batch(self, lines, *args, model=MODEL, out="out.jsonl"):
        r = self.ok("batch", model, self.write(lines), self.path(out), *args)
        return self.results(out), r

    def results(self, out="out.jsonl"):
        with open(self.path(out)) as f:
            return [json.loads(line) for line in f]

    def test_each_text_is_what_generate_makes_of_it(self):
        lines = [{"prompt": t, "id": f"n{i}"} for i, t in enumerate(TEXTS)]
        sampling = ["-n", "12", "--temp", "0.8", "--seed", "3"]
        found, _ = self.batch(lines, "--sessions", "4", *sampling)
        self.assertEqual([r["line"] for r in found], [1, 2, 3, 4, 5, 6])
        self.assertEqual([r["id"] for r in found], [l["id"] for l in lines])
        for text, r in zip(TEXTS, found, strict=True):
            alone = json.loads(self.ok("generate", MODEL, "-p", text, "--json", *sampling).stdout)
            self.assertEqual(r["text"], alone["text"])
            for key in ("finish", "n_prompt", "n_generated"):
                self.assertEqual(r[key], alone[key])
        for n in ("1", "16"):
            self.assertEqual(self.batch(lines, "--sessions", n, *sampling, out=n)[0], found)

    def test_a_text_ends_before_a_stop(self):
        lines = [{"prompt": t} for t in TEXTS]
        sampling = ["-n", "40", "--temp", "0.8", "--seed", "3"]
        stops = ["--stop", ". ", "--stop", "and"]
        found, _ = self.batch(lines, "--sessions", "4", *sampling, *stops)
        for text, r in zip(TEXTS, found, strict=True):
            alone = json.loads(self.ok("generate", MODEL, "-p", text, "--json", *sampling, *stops).stdout)
            for key in ("text", "finish", "n_generated"):
                self.assertEqual(r[key], alone[key])
        self.assertIn("stop", [r["finish"] for r in found])

    def test_stops_that_overlap(self):
        lines = [{"prompt": t} for t in TEXTS]
        words = set()
        for t in TEXTS:
            text = self.ok("generate", MODEL, "-p", t, "-n", "40").stdout[len(t):]
            words.update((text[i:i + 6], text[i + 1:i + 4]) for i in range(0, 24, 3))
        for stops in sorted(words)[::5]:
            options = ["-n", "40", *(w for s in stops for w in ("--stop", s))]
            found, _ = self.batch(lines, *options)
            os.remove(self.path("out.jsonl"))
            for text, r in zip(TEXTS, found, strict=True):
                alone = json.loads(self.ok("generate", MODEL, "-p", text, "--json", *options).stdout)
                self.assertEqual((r["text"], r["n_generated"]), (alone["text"], alone["n_generated"]), stops)

    def test_a_damaged_model_ends_the_batch(self):
        """Its experts are read on demand. The fault is not one of a line, which would then have its result."""
        with open(MODEL, "rb") as f:
            model = bytearray(f.read())
        for tensor in json.loads(self.ok("inspect", MODEL, "--tensors", "--json").stdout)["tensors"]:
            if tensor["name"].startswith("layers.3.") and tensor["name"].endswith(".gate"):
                model[tensor["file_offset"]] ^= 1
        with open(self.path("bad.moe"), "wb") as f:
            f.write(model)
        options = ("--sessions", "1", "--context", "64", "-n", "4", "--memory")
        plan = json.loads(self.ok("inspect", MODEL, "--json", "--context", "64", "--memory", "1G").stdout)["plan"]
        source = self.write([{"prompt": t} for t in TEXTS])
        self.fails(1, "batch", self.path("bad.moe"), source, self.path("out.jsonl"), *options, str(plan["least_cap_bytes"]),
                   contains=["bad.moe: segment layers.3.", "checksum"])
        self.assertEqual(self.results(), [])
        for command in (("eval", "-p", "The fox"), ("generate", "-p", "The fox"), ("inspect", "--verify"), ("score", "-p", "The fox"),
                        ("embed", "-p", "The fox")):
            for how in ((), ("--map",)):
                self.fails(1, command[0], self.path("bad.moe"), *command[1:], *how,
                           contains=[f"moe: {self.path('bad.moe')}: segment layers.3.", ": its checksum does not match"])
        self.ok("batch", MODEL, source, self.path("out.jsonl"), *options, str(plan["least_cap_bytes"]))
        self.assertEqual([r["n_generated"] for r in self.results()], [4] * len(TEXTS))

    def model_with_a_broken_token(self):
        """Its third token after 1,2,3 has an embedding that overflows: evaluating that token is an error."""
        source, file = self.path("source"), self.path("m.moe")
        shutil.copytree(os.path.join(CHECKPOINT, "../shared_gated"), source)
        with open(os.path.join(source, "config.json"), "r+") as f:
            config = json.load(f)
            f.seek(0)
            json.dump({**config, "embedding_multiplier": 4}, f)
            f.truncate()
        self.ok("convert", source, file, "--weights", "f32")
        text = self.ok("generate", file, "--tokens", "1,2,3", "-n", "3", "--no-echo").stdout
        token = int(text.split(",")[2])
        with open(os.path.join(source, "model.safetensors"), "r+b") as f:
            n = int.from_bytes(f.read(8), "little")
            embedding = json.loads(f.read(n))["embedding.weight"]
            row = 2 * embedding["shape"][1]
            f.seek(8 + n + embedding["data_offsets"][0] + token * row)
            f.write(b"\x7f\x7f" * (row // 2))  # 3.4e38 as BF16
        self.ok("convert", source, file, "--weights", "f32")
        return file

    def test_the_last_token_of_a_text_is_not_evaluated(self):
        model, prompt = self.model_with_a_broken_token(), {"tokens": [1, 2, 3]}
        three, four = (self.batch([prompt], "-n", n, model=model, out=n)[0][0] for n in ("3", "4"))
        self.assertEqual((three["finish"], three["n_generated"]), ("length", 3))
        self.assertIn("NaN or infinite", four["error"])

    def test_a_line_has_stops_of_its_own(self):
        prompt = {"prompt": "Once upon a time"}
        whole, _ = self.batch([prompt], "-n", "30")
        lines = [{**prompt, "stop": " girl"}, {**prompt, "stop": ["never seen", " quiet"]}, {**prompt, "stop": []},
                 {**prompt, "stop": ""}, {**prompt, "stop": [7]}, {**prompt, "stop": "a\0b"}, prompt]
        found, _ = self.batch(lines, "-n", "30", "--stop", ",", out="own")
        text = whole[0]["text"]
        for r, stop in zip(found[:2], (" girl", " quiet"), strict=True):
            self.assertEqual((r["text"], r["finish"]), (text[:text.index(stop)], "stop"))
        self.assertEqual((found[2]["text"], found[2]["finish"]), (text, "length"))
        for r in found[3:6]:
            self.assertIn("'stop': expected", r["error"])
        self.assertEqual((found[6]["text"], found[6]["finish"]), ("", "stop"))

    def test_files_that_are_no_results_stay_as_they_were(self):
        lines = self.write([{"prompt": "The fox"}, {"prompt": "A dog"}])
        for text in ('{"prompt":"a"}\n{"prompt":"b"}', "notes without an end", "{", '{"line":1,"note":"my own"}', '{"line":1,"id":5,"text":"a","n_prompt":2}',
                     '{"line":1,"text":"a"}\nnotes\n',
                     '{"line":2,"text":"a"}\n', '{"line":1,"text":"a"}\n{"lime'):
            with open(self.path("other"), "w") as f:
                f.write(text)
            self.fails(1, "batch", MODEL, lines, self.path("other"), contains=["other: line", "not "])
            with open(self.path("other")) as f:
                self.assertEqual(f.read(), text)
        self.fails(1, "batch", MODEL, lines, lines, contains=["not a result"])
        with open(lines, "rb") as f:
            self.assertEqual(f.read(), b'{"prompt": "The fox"}\n{"prompt": "A dog"}\n')

    def test_pipes_are_read_and_folders_are_not(self):
        text = '{"prompt": "The fox"}\n' * 3
        for stdin in ("-", "/dev/stdin"):
            self.ok("batch", MODEL, stdin, self.path(stdin[-1]), "-n", "2", text=text)
            self.assertEqual(len(self.results(stdin[-1])), 3)
        self.fails(1, "batch", MODEL, self.folder.name, self.path("none"), contains=[self.folder.name])

    def test_a_file_with_the_name_of_stdin_is_not_read(self):
        self.write([{"prompt": "A dog"}], name="-")
        r = subprocess.run([os.path.abspath(MOE), "batch", os.path.abspath(MODEL), "-", "out", "-n", "2"], cwd=self.folder.name,
                           input='{"prompt": "The fox"}\n' * 3, capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(len(self.results("out")), 3, r.stderr)

    def test_devices_without_an_end(self):
        one = self.write([{"prompt": "The fox"}])
        self.fails(1, "batch", MODEL, one, "/dev/full", "-n", "2", contains=["/dev/full: No space left"])
        self.fails(1, "batch", MODEL, "/dev/zero", self.path("none"), contains=["/dev/zero: a line does not end within"])

    def test_a_line_that_is_nested_too_deep_is_one_bad_line(self):
        deep = b'{"prompt": "a", "id": ' + b"[" * 100000 + b"]" * 100000 + b"}"
        found, _ = self.batch([deep, b'{"tokens": ' + b"[" * 100000 + b"]" * 100000 + b"}",
                               {"prompt": "A dog", "id": '[[' * 100 + '\\"'}], "-n", "2")
        self.assertEqual(found[0]["error"], "nested deeper than 64")
        self.assertEqual(found[1]["error"], "nested deeper than 64")
        self.assertEqual(found[2]["n_generated"], 2)

    def test_an_object_with_too_many_keys_is_one_bad_line(self):
        # A line of 4 MiB with short keys, which would take the parser minutes; colons in texts are no keys.
        many = {"prompt": "a", "metadata": {str(i): 0 for i in range(300000)}}
        most = {"prompt": 'a: {"b": [', "metadata": {f'{i}:\\":': {"a": 0} for i in range(4096)}}
        found, _ = self.batch([many, {**most, "metadata": {**most["metadata"], "x": 0}}, most, {"prompt": "a"}], "-n", "2")
        self.assertEqual([r.get("error") for r in found], ["an object has more than 4096 keys"] * 2 + [None] * 2)

    def test_results_beyond_the_limits_of_json_are_damaged_ones(self):
        lines = self.write([{"prompt": "The fox"}, {"prompt": "A dog", "id": 4}])
        for more in "{" + ", ".join(f'"{i}": 0' for i in range(300000)) + "}", "[" * 100000 + "]" * 100000:
            damaged = b'{"line":1,"more": ' + more.encode() + b"}"
            self.write([damaged], "out.jsonl")
            self.ok("batch", MODEL, lines, self.path("out.jsonl"), "-n", "2")
            with open(self.path("out.jsonl"), "rb") as f:
                first, second = f.read().splitlines()
            self.assertEqual((first, json.loads(second)["id"]), (damaged, 4))

    def test_bad_lines_are_named_and_stop_nothing(self):
        lines = [{"prompt": "The fox"}, b"no json", b"[1, 2]", b"\xff\xfe{}", b"", {"prompt": 7}, {"tokens": [1, 1536]},
                 {"tokens": ["x"]}, {"prompt": "a", "tokens": [1]}, {"id": 4}, {"messages": []},
                 {"prompt": "fox " * 600}, b'{"prompt": "' + b"x" * (10 << 20) + b'"}', {"prompt": "The fox"},
                 {"tokens": []}, b'{"prompt": "' + b'\xc3\x28"}', b" \t\r", {"prompt": "a", "colour": 5}, b'{"prompt": "a", "id": 123456789012345678901}']
        found, r = self.batch(lines, "-n", "4", "--sessions", "3")
        self.assertEqual([f["line"] for f in found], list(range(1, len(lines) + 1)))
        words = {2: "not valid JSON", 3: "object, found array", 4: "UTF-8", 5: "is empty", 6: "'prompt'", 7: "0..1535", 8: "'tokens'",
                 9: "one of", 10: "one of", 11: "'messages'", 12: "512", 13: "4 MiB", 15: "no tokens", 16: "UTF-8",
                 17: "is empty", 18: "unknown key 'colour'", 19: "whole number of 64 bits"}
        for f in found:
            if f["line"] in words:
                self.assertIn(words[f["line"]], f["error"])
            else:
                self.assertEqual(f["n_generated"], 4)
        self.assertIn(f"{len(lines)} lines done, {len(words)} with errors\n", r.stderr)
        self.assertEqual(found[9]["id"], 4)
        self.assertEqual(found[0]["text"], found[13]["text"])

    def test_a_line_has_settings_of_its_own(self):
        line = {"prompt": TEXTS[0], "max_tokens": 9, "temperature": 0.8, "seed": 3, "top_p": 0.9, "top_k": 40, "min_p": 0.01,
                "repetition_penalty": 1.1, "n": 1, "stream": False, "stop": None, "custom_id": "c"}
        (found, other), _ = self.batch([line, {"prompt": TEXTS[0], "id": "o"}], "-n", "4")
        alone = json.loads(self.ok("generate", MODEL, "-p", TEXTS[0], "--json", "-n", "9", "--temp", "0.8", "--seed", "3", "--top-p", "0.9",
                                   "--top-k", "40", "--min-p", "0.01", "--repetition-penalty", "1.1").stdout)
        self.assertEqual((found["text"], found["n_generated"], found["custom_id"]), (alone["text"], 9, "c"))
        greedy = json.loads(self.ok("generate", MODEL, "-p", TEXTS[0], "--json", "-n", "4").stdout)
        self.assertEqual((other["text"], other["id"]), (greedy["text"], "o"))
        bad = [({"temperature": "hot"}, "'temperature'"), ({"temperature": -1}, "'temperature'"), ({"max_tokens": 0}, "'max_tokens'"),
               ({"max_tokens": 1.5}, "whole number"), ({"top_p": 2}, "'top_p'"), ({"n": 2}, "'n': expected 1"), ({"stream": True}, "'stream'"),
               ({"max_tokens": 1, "max_completion_tokens": 1}, "the same"), ({"seed": -1}, "'seed'"), ({"id": 1, "custom_id": 2}, "one id")]
        found, _ = self.batch([{"prompt": "a", **keys} for keys, _ in bad], out="bad")
        for (_, words), result in zip(bad, found, strict=True):
            self.assertIn(words, result["error"])

    def test_a_batch_file_of_openai_is_read(self):
        model = self.path("script.moe")
        self.ok("convert", CHAT, model, "--weights", "f32")
        messages = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo?"}]}]
        line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
                "body": {"model": "any", "messages": messages, "max_completion_tokens": 60, "temperature": None}}
        lines = [line, {"messages": [{"role": "user", "content": "Hello?"}], "custom_id": "a"},
                 {**line, "body": {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}}, {**line, "body": 3}, {**line, "more": 1}]
        (whole, flat, image, wrong, more), _ = self.batch(lines, model=model)
        self.assertEqual((whole["text"], whole["custom_id"]), ("Yes.", "a"))
        self.assertEqual({**whole, "line": 2}, flat)
        self.assertIn("content[0]", image["error"])
        self.assertIn("image_url", image["error"])
        self.assertIn("'body': expected an object", wrong["error"])
        self.assertIn("'more' beside 'body'", more["error"])
        # Results of it are recognised.
        self.batch(lines, model=model)

    def test_it_goes_on_where_it_was_killed(self):
        lines = [{"prompt": t} for t in TEXTS * 20]
        whole, _ = self.batch(lines, "-n", "60", out="whole")
        source = self.write(lines)
        p = subprocess.Popen([MOE, "batch", MODEL, source, self.path("cut"), "-n", "60"], stderr=subprocess.DEVNULL)
        for _ in range(2000):
            if os.path.exists(self.path("cut")) and os.path.getsize(self.path("cut")) > 2000:
                break
            time.sleep(0.005)
        p.send_signal(signal.SIGKILL)
        p.wait()
        n = len(self.results("cut"))
        with open(self.path("cut"), "ab") as f:
            f.write(b'{"line":%d,"te' % (n + 1))  # half a line
        r = self.ok("batch", MODEL, source, self.path("cut"), "-n", "60")
        self.assertIn(f"continuing after line {n}; to begin again, remove {self.path('cut')}\n", r.stderr)
        self.assertEqual(self.results("cut"), whole)
        self.assertIn("0 lines done\n", self.ok("batch", MODEL, source, self.path("cut"), "-n", "60").stderr)
        self.assertEqual(self.results("cut"), whole)

    def test_a_result_without_its_newline_is_kept(self):
        lines = [{"prompt": t} for t in TEXTS]
        whole, _ = self.batch(lines, "-n", "4")
        with open(self.path("out.jsonl"), "rb") as f:
            results = f.read().splitlines()
        with open(self.path("cut"), "wb") as f:
            f.write(b"\n".join(results[:2]))
        r = self.ok("batch", MODEL, self.write(lines), self.path("cut"), "-n", "4")
        self.assertIn("continuing after line 2;", r.stderr)
        self.assertEqual(self.results("cut"), whole)

    def test_keys_of_messages_and_of_clients(self):
        self.ok("convert", CHAT, self.path("chat.moe"), "--weights", "f32")
        hello = {"role": "user", "content": "Hello?", "name": "Ada", "refusal": None}
        silent = {"role": "assistant", "content": None, "reasoning_content": "why"}
        idle = {"frequency_penalty": 0, "presence_penalty": 0.0, "logprobs": False, "response_format": {"type": "text"},
                "user": "me", "metadata": {"a": "b"}, "store": True, "model": "any"}
        found, _ = self.batch([{"messages": [hello]}, {"messages": [hello], **idle}, {"messages": [hello, silent, hello]},
                               {"messages": [{**hello, "function_call": {}}]}, {"messages": [hello], "response_format": {"type": "xml"}},
                               {"messages": [hello], "max_tokens": 1 << 30}, {"messages": [hello], "colour": 1},
                               {"custom_id": "w", "url": "/v1", "body": 3}], model=self.path("chat.moe"))
        self.assertEqual({**found[0], "line": 2}, found[1])
        self.assertNotIn("error", found[2])
        for result, words in zip(found[3:], ("'messages[0]': unknown key 'function_call'", "'response_format.type': expected", "in 1..16777216, found 1073741824",
                                             "'custom_id', 'stop', 'max_tokens' or 'max_completion_tokens'", "'body': expected"), strict=True):
            self.assertIn(words, result["error"])
        self.assertEqual(found[7]["custom_id"], "w")

    def test_calls_of_tools(self):
        model = self.path("tools.moe")
        self.ok("convert", os.path.join(os.path.dirname(CHAT), "tools"), model, "--weights", "f32")
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        asked = [{"role": "user", "content": "Weather?"}]
        calls = [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
        told = [*asked, {"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "tool_call_id": "a", "content": "18"}]
        lines = [{"messages": asked, "tools": tools, "tool_choice": "auto"}, {"messages": told, "tools": tools}, {"messages": asked},
                 {"messages": asked, "tools": 5}, {"prompt": "a", "tools": tools}, {"messages": asked, "tools": tools, "tool_choice": "required"},
                 {"messages": [asked[0], {**told[1], "tool_calls": [5]}]}]
        lines[5]["tool_choice"] = "some"
        found, _ = self.batch([{**line, "temperature": 0} for line in lines], model=model)
        self.assertEqual(found[0]["text"], "Ok!")
        self.assertEqual([c["function"] for c in found[0]["tool_calls"]],
                         [{"name": "weather", "arguments": '{"city": "Zürich", "days": 2}'}, {"name": "clock", "arguments": "{}"}])
        self.assertEqual(found[1]["text"], "Yes.")
        self.assertNotIn("tool_calls", found[1])
        self.assertTrue(found[2]["text"].startswith("Ok!<tool_call>"), found[2])
        for result, words in zip(found[3:], ("'tools': tools: expected a list", "only with 'messages'", "'tool_choice': expected \"auto\"",
                                             "'messages[1]': tool_calls[0]"), strict=True):
            self.assertIn(words, result["error"])
        yes = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
        two = [*tools, {"type": "function", "function": {"name": "f", "parameters": yes}}]
        f = {"type": "function", "function": {"name": "f"}}
        chosen, _ = self.batch([{"messages": asked, "tools": two, "tool_choice": choice, "max_tokens": 200} for choice in
                                (f, "required", "none", {**f, "function": {"name": "g"}}, {"type": "function", "name": "f"})] +
                               [{"messages": asked, "tool_choice": "required"}, {"messages": asked, "tool_choice": "none"}], model=model, out="chosen")
        self.assertEqual([(c["function"]["name"], list(json.loads(c["function"]["arguments"]))) for c in chosen[0]["tool_calls"]], [("f", ["yes"])])
        self.assertEqual(chosen[0]["text"], "")
        self.assertRegex(chosen[1]["text"], "^(<tool_call>|$)")  # the last call may be cut
        self.assertGreaterEqual(len(chosen[1]["tool_calls"]), 1)
        for result in chosen[2], chosen[6]:
            self.assertTrue(result["text"].startswith("Ok!<tool_call>") and "tool_calls" not in result, result)
        for result, words in zip(chosen[3:6], ("none with the name 'g'", "'tool_choice': expected \"auto\"", "'tool_choice': only with 'tools'")):
            self.assertIn(words, result["error"])
        # Names that C has not.
        odd = [{"messages": asked, "tools": two, "tool_choice": {**f, "function": {"name": name}}} for name in ("", "f\0", "f\0g")]
        refused, _ = self.batch([*odd, {"messages": asked, "tools": [], "tool_choice": "required"}], model=model, out="refused")
        for result, words in zip(refused, ['expected the name of a tool, found ""', 'found "f\\u0000"', 'found "f\\u0000g"', "only with 'tools'"], strict=True):
            self.assertIn(words, result["error"])
        one = {"messages": asked, "tools": tools, "temperature": 0, "parallel_tool_calls": False}
        alone, _ = self.batch([one, {**one, "parallel_tool_calls": True}, {**one, "tools": two, "tool_choice": "required", "max_tokens": 200},
                               {**one, "tool_choice": "none"}, {"prompt": "a", "max_tokens": 1, "parallel_tool_calls": False},
                               {**one, "parallel_tool_calls": 0}], model=model, out="alone")
        self.assertEqual((alone[0]["text"], [c["function"]["name"] for c in alone[0]["tool_calls"]], alone[0]["finish"]), ("Ok!", ["weather"], "call"))
        self.assertEqual((len(alone[1]["tool_calls"]), alone[1]["finish"]), (2, "eos"))
        self.assertGreater(alone[1]["n_generated"], alone[0]["n_generated"])
        self.assertEqual((len(alone[2]["tool_calls"]), alone[2]["finish"]), (1, "call"))
        self.assertNotIn("tool_calls", alone[3])
        self.assertEqual(alone[4]["n_generated"], 1)
        self.assertEqual(alone[5]["error"], "'parallel_tool_calls': expected true or false, found 0")
        # A result has the name of the tool whose call has its id; a token is a byte here.
        with open(self.path("names.jinja"), "w") as f:
            f.write("{% for m in messages %}{{ m.role }} {{ m.name }} {{ m.content or '' }}{% for c in m.tool_calls %}"
                    "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}")
        ends = [told[2], {**told[2], "name": "weather"}, {**told[2], "name": "sun"}, {**told[2], "tool_call_id": "b"}]
        named, _ = self.batch([{"messages": [*told[:2], end], "max_tokens": 1} for end in ends], "--template", self.path("names.jinja"), model=model, out="named")
        self.assertEqual([r["n_prompt"] - named[3]["n_prompt"] for r in named], [7, 7, 3, 0])
        held, _ = self.batch(lines[1:3], "--regex", "[a-z]{3}", model=model, out="held")
        self.assertIn("a grammar: not together with tools", held[0]["error"])
        self.assertRegex(held[1]["text"], "^[a-z]{3}$")

    def test_results_of_another_file_are_kept(self):
        for lines, others in (([{"prompt": "The fox", "id": 1}], [{"prompt": "The fox", "id": 2}, {"prompt": "a"}]),
                              ([{"prompt": "The fox"}], [{"prompt": "The fox was very"}, {"prompt": "a"}]),
                              ([{"tokens": [1, 2]}], [{"tokens": [1]}, {"prompt": "a"}]),
                              ([{"prompt": "The fox"}], [b"no json", {"prompt": "a"}])):
            found, _ = self.batch(lines, "-n", "2", out="kept")
            self.fails(1, "batch", MODEL, self.write(others), self.path("kept"), "-n", "2",
                       contains=["kept: line 1 is not the result of line 1 of", "in.jsonl: results of another file?"])
            self.assertEqual(self.results("kept"), found)
            self.assertEqual(self.batch(lines + others[1:], "-n", "2", out="kept")[0][0], found[0])
            os.remove(self.path("kept"))

    def test_results_to_stdout(self):
        lines = [{"prompt": t} for t in TEXTS]
        found, _ = self.batch(lines, "-n", "2")
        self.assertEqual([json.loads(l) for l in self.ok("batch", MODEL, self.write(lines), "-", "-n", "2").stdout.splitlines()], found)
        self.assertFalse(os.path.exists("-"))

    def test_one_process_at_a_time(self):
        source = self.write([{"prompt": "The"}])
        with open(self.path("o"), "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            self.fails(1, "batch", MODEL, source, self.path("o"), contains=["another process"])
        self.ok("batch", MODEL, source, self.path("o"), "-n", "2")
        self.write([], "none")
        self.fails(1, "batch", MODEL, self.path("none"), self.path("o"), contains=["more than"])

    def test_conversations(self):
        self.ok("convert", CHAT, self.path("chat.moe"), "--weights", "f32")
        hello = {"role": "user", "content": "Hello?"}
        found, _ = self.batch([{"messages": [hello]}], model=self.path("chat.moe"))
        self.assertEqual(found[0]["text"], "Yes.")
        self.assertEqual(found[0]["finish"], "eos")
        found, r = self.batch([{"messages": [hello]}], out="none")
        self.assertEqual(found[0]["error"], "'messages': the model has no chat template; --template gives one")
        self.assertIn("moe: 1 line done, all with errors\n", r.stderr)

    def test_options_of_conversations(self):
        with open(self.path("t.jinja"), "w") as f:
            f.write("{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}{{ enable_thinking }} {{ name }}")
        user, system = {"role": "user", "content": "fox"}, {"role": "system", "content": "mine"}
        options = ("--template", self.path("t.jinja"), "--system", "yours", "--no-think", "--set", "name=Ada", "-n", "4")
        found, _ = self.batch([{"messages": [user]}, {"messages": [system, user]}, {"prompt": "The fox"}], *options)
        for r, text in zip(found, ("system yours user fox False Ada", "system mine user fox False Ada"), strict=False):
            alone = json.loads(self.ok("generate", MODEL, "-p", text, "--no-bos", "-n", "4", "--json").stdout)
            self.assertEqual((r["text"], r["n_prompt"]), (alone["text"], alone["n_prompt"]))
        self.assertEqual(found[2]["text"], self.ok("generate", MODEL, "-p", "The fox", "-n", "4", "--no-echo").stdout[:-1])
        self.ok("convert", CHAT, self.path("chat.moe"), "--weights", "f32")
        found, _ = self.batch([{"messages": [user]}], "--think", model=self.path("chat.moe"), out="think")
        self.assertEqual(found[0]["text"], "Yes.")
        source = self.write([{"messages": [user]}])
        self.fails(1, "batch", MODEL, source, self.path("no"), "--system", "x", contains=["no chat template; --template gives one"])
        self.fails(1, "batch", MODEL, source, self.path("no"), "--template", "chatml", "--think", contains=["enable_thinking"])
        self.fails(2, "batch", MODEL, source, self.path("no"), "--think", "--no-think", contains=["cannot be combined"])
        self.fails(2, "batch", MODEL, source, self.path("no"), "--set", "x", contains=["NAME=VALUE"])

    def test_a_bad_message_is_named(self):
        self.ok("convert", CHAT, self.path("chat.moe"), "--weights", "f32")
        hello = {"role": "user", "content": "Hello?"}
        errors = {"'messages[1]': no 'role'": {"content": "a"}, "'messages[1]': no 'content'": {"role": "user"},
                  "'messages[1]': 'role': expected a string, found number": {"role": 7, "content": "a"},
                  "'messages[1]': 'content': expected a string, found null": {"role": "user", "content": None},
                  "'messages[1]': expected an object, found string": "a",
                  "'messages[1]': role: expected 1..256 bytes, found 0": {"role": "", "content": "a"}}
        found, _ = self.batch([{"messages": [hello, bad]} for bad in errors.values()] + [{"messages": hello}],
                              model=self.path("chat.moe"))
        self.assertEqual([f["error"] for f in found], list(errors) + ["'messages': expected a non-empty list"])

    def test_a_template_replaces_the_models(self):
        with open(self.path("t.jinja"), "w") as f:
            f.write("{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('no role ' + m.role) }}{% endif %}"
                    "{{ m.content }}{% endfor %}, there")
        text = "Once upon a time"
        lines = [{"messages": [{"role": "user", "content": text}]}, {"messages": [{"role": "wizard", "content": text}]}]
        found, _ = self.batch(lines, "-n", "8", "--template", self.path("t.jinja"))
        alone = json.loads(self.ok("generate", MODEL, "-p", text + ", there", "--no-bos", "-n", "8", "--json").stdout)
        self.assertEqual(found[0]["text"], alone["text"])
        self.assertIn("no role wizard", found[1]["error"])
        for name in ("plain", "chatml"):
            found, _ = self.batch(lines[:1], "-n", "8", "--template", name, out=name)
            said = self.ok("chat", MODEL, "-n", "8", "--temp", "0", "--template", name, text=text + "\n").stdout
            self.assertEqual(found[0]["text"], said.rstrip("\n"))
        with open(self.path("bad.jinja"), "w") as f:
            f.write("{% if")
        source = self.write(lines)
        self.fails(1, "batch", MODEL, source, self.path("no"), "--template", self.path("bad.jinja"), contains=["a tag without an end"])
        self.fails(2, "batch", MODEL, source, self.path("no"), "--template", "chatlm", contains=["chatml"])

    def test_a_line_is_answered_before_the_next_one_arrives(self):
        p = subprocess.Popen([MOE, "batch", MODEL, "-", self.path("out.jsonl"), "-n", "4"], stdin=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        begun = ""  # of the next line
        for n, text in enumerate(TEXTS[:3], 1):
            line = json.dumps({"prompt": text}) + "\n"
            p.stdin.write(line[len(begun):] + '{"prom')
            begun = '{"prom'
            p.stdin.flush()
            self.wait_for_lines(p, n)
        _, err = p.communicate('pt": "The end"}\n', timeout=60)
        self.assertIn("4 lines done\n", err)
        self.batch([{"prompt": t} for t in (*TEXTS[:3], "The end")], "-n", "4", out="whole")
        self.assertEqual(self.results(), self.results("whole"))

    def wait_for_lines(self, process, n):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if os.path.exists(self.path("out.jsonl")) and len(self.results()) == n:
                return
            time.sleep(0.01)
        self.fail(f"no result of line {n} within a minute, while {process.pid} waits")

    def test_sessions_are_no_more_than_the_lines_left(self):
        args = ("--context", "40", "-n", "4", "--memory")
        plan = json.loads(self.ok("inspect", MODEL, "--json", "--context", "40", "--memory", "1G").stdout)["plan"]
        one, more = plan["least_cap_bytes"], plan["session_bytes"]
        lines = [{"prompt": t} for t in TEXTS]
        whole, _ = self.batch(lines, "--context", "40", "-n", "4", out="whole")
        self.assertEqual(self.batch(lines[:1], *args, str(one), out="one")[0], whole[:1])
        least = one + 5 * more
        source = self.write(lines)
        self.fails(1, "batch", MODEL, source, self.path("out"), *args, str(least - 1),
                   contains=["6 sessions (--sessions): the cap of", f"too small: {least} bytes at least", "of which each session takes"])
        self.fails(1, "batch", MODEL, "/dev/stdin", self.path("pipe"), *args, str(least), text="{}\n",
                   contains=["8 sessions (--sessions): "])
        self.assertEqual(self.batch(lines, *args, str(least), out="all")[0], whole)
        with open(self.path("whole")) as f, open(self.path("rest"), "w") as rest:
            rest.writelines(f.readlines()[:4])
        self.assertEqual(self.batch(lines, *args, str(one + more), out="rest")[0], whole)

    def test_usage(self):
        self.fails(2, "batch", MODEL, contains=["IN"])
        self.fails(2, "batch", MODEL, "a", "b", "--stop", "", contains=["--stop: must not be empty"])
        self.fails(1, "batch", MODEL, self.path("no"), self.path("o"), contains=["no: No such file"])
        self.assertFalse(os.path.exists(self.path("o")))
        self.fails(1, "batch", MODEL, self.write([]), self.path("no/o"), contains=["no/o"])


main()
