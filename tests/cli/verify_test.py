#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Receipts of moe serve, moe verify, and vectors over HTTP."""

import base64
import json
import os
import stat
import struct

from serve_test import PROMPTS, Server, request_text
from support import MODEL, Cli, main, run

ENCODERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/encoders")
SENTENCES, PAIRS = (os.path.join(ENCODERS, name) for name in ("sentences", "bert_pairs"))


class Receipts(Cli):
    def lines(self, name="receipts"):
        with open(self.path(name), encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def write(self, receipts, name="changed"):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(receipt) + "\n" for receipt in receipts)
        return self.path(name)

    def verify(self, *args, model=MODEL):
        """Status, the lines of stdout, and stderr."""
        r = run("verify", model, *args, *(("--template", "plain") if model == MODEL and "--template" not in args else ()))
        return r.returncode, r.stdout.splitlines(), r.stderr

    def log(self):
        """A log of every kind of answer."""
        server = Server(self, "--log-receipts", self.path("receipts"))
        for i, prompt in enumerate(PROMPTS):
            server.post("/v1/completions", {"prompt": prompt, "max_tokens": 10, "n": 1 + i % 3, "temperature": 1.5, "seed": i})
        server.post("/v1/completions", {"prompt": [[5, 6], [7]], "max_tokens": 3, "model": "stories", "stop": "a"})
        turn = [{"role": "user", "content": "The dog"}]
        server.stream("/v1/chat/completions", {"messages": turn, "max_tokens": 9, "logprobs": True})
        server.named_stream("/v1/messages", {"messages": turn, "max_tokens": 9})
        server.post("/v1/responses", {"input": "The dog", "max_output_tokens": 9})
        server.refuses(400, {"prompt": 5})
        server.process.terminate()
        server.process.wait()

    def test_a_log_is_a_test_suite(self):
        self.log()
        self.assertEqual(stat.S_IMODE(os.stat(self.path("receipts")).st_mode), 0o600)
        receipts = self.lines()
        self.assertEqual(len(receipts), len(PROMPTS) + 4)
        self.assertEqual(len({r["system_fingerprint"] for r in receipts}), 1)
        code, lines, errors = self.verify(self.path("receipts"))
        self.assertEqual((code, lines, errors), (0, [f"{len(receipts)} receipts: {len(receipts)} the same, 0 different"], ""))
        for more in (("--threads", "1"), ("--isa", "scalar"), ("--slots", "1"), ("--memory", "5M", "--context", "512")):
            code, lines, errors = self.verify(self.path("receipts"), *more)
            self.assertEqual((code, len(lines)), (0, 1), (more, lines, errors))
        json_result = json.loads(self.ok("verify", MODEL, self.path("receipts"), "--template", "plain", "--json").stdout)
        self.assertEqual(json_result, {"receipts": len(receipts), "same": len(receipts), "different": 0, "differences": []})

    def test_what_differs_is_said(self):
        self.log()
        receipts = self.lines()
        receipts[0]["texts"][0]["tokens"][3] += 1
        receipts[1]["texts"][1]["finish"] = "context"
        receipts[2]["hash"] = "0" * 32
        receipts[3]["seed"] += 1
        receipts[4]["prompts"][0].append(5)
        changed = self.write(receipts)
        code, lines, errors = self.verify(changed)
        self.assertEqual(code, 1)
        self.assertRegex(lines[0], rf"^{changed}:1: the text differs at token 4: \d+ there, \d+ here$")
        self.assertRegex(lines[1], rf'^{changed}:2: text 2 ends with "context" there, "(length|eos)" here$')
        self.assertEqual(lines[2], f"{changed}:3: the receipt is damaged: its hash is not of its tokens")
        self.assertRegex(lines[3], rf"^{changed}:4: .*differs at token \d+")
        self.assertRegex(lines[4], rf"^{changed}:5: the prompt has \d+ tokens there, \d+ here$")
        self.assertEqual(lines[5], f"{len(receipts)} receipts: {len(receipts) - 5} the same, 5 different")
        self.assertIn(f"5 answers of {len(receipts)} differ", errors)

    def test_other_settings_are_said_once(self):
        self.log()
        _, _, errors = self.verify(self.path("receipts"), "--kv", "int8", "--context", "256")
        self.assertEqual(errors.count("moe: note:"), 2, errors)
        self.assertIn('made with kv "f16", here "int8"', errors)
        self.assertIn("made with context 512, here 256", errors)

    def test_answers_with_receipts_are_taken(self):
        server = Server(self, "--name", "a name")
        answer = server.post("/v1/completions", {"prompt": "The dog", "receipt": True, "model": "a name"})
        response = server.named_stream("/v1/responses", {"input": "The dog", "receipt": True, "max_output_tokens": 5})[-1]
        code, lines, errors = self.verify(self.write([answer, response]))
        self.assertEqual((code, lines), (0, ["2 receipts: 2 the same, 0 different"]), errors)
        self.assertEqual(run("verify", MODEL, "-", "--template", "plain", text=json.dumps(answer)).returncode, 0)

    def test_what_is_none(self):
        self.log()
        good = self.lines()[0]
        self.assertIn("no such file or directory", self.verify(self.path("none"))[2].lower())
        for bad, words in (("{", "found no JSON"), ("[1]", "found array"), ('{"a": 1}', "this is no receipt"), ("[" * 100, "nested deeper than 64"),
                           (json.dumps({str(i): 0 for i in range(500000)}), "an object has more than 4096 keys"),
                           (json.dumps({**good, "texts": 5}), "a part of the receipt is missing"),
                           (json.dumps({**good, "endpoint": "/v1/other"}), "unknown endpoint"),
                           (json.dumps({**good, "prompts": [["a"]]}), "no list of token ids")):
            with open(self.path("bad"), "w", encoding="utf-8") as f:
                f.write(f"\n{bad}\n")
            code, lines, errors = self.verify(self.path("bad"))
            self.assertEqual((code, lines), (1, []))
            self.assertIn(f"{self.path('bad')}:2: ", errors)
            self.assertIn(words, errors)
        refused = {**good, "request": {**good["request"], "tempreature": 1}}
        code, lines, _ = self.verify(self.write([refused]))
        self.assertEqual((code, lines[0]), (1, f"{self.path('changed')}:1: no answer here: unknown field 'tempreature'"))
        self.fails(1, "serve", "--port", "0", MODEL, "--log-receipts", self.path("no/such"), contains=["cannot be written"])

    def test_a_full_disk_loses_receipts_and_no_answers(self):
        server = Server(self, "--log-receipts", "/dev/full")
        for _ in range(3):
            server.complete("The dog")
        self.assertEqual(server.text().count("receipts are lost"), 1)
        self.assertIn("No space left", server.text())

    def test_vectors(self):
        self.ok("convert", SENTENCES, self.path("s.moe"), "--weights", "f32")
        server = Server(self, "--log-receipts", self.path("receipts"), model=self.path("s.moe"))
        texts = ["the cat sat", "a dog"]
        expected = json.loads(self.ok("embed", self.path("s.moe"), "-p", texts[0], "-p", texts[1], "--threads", "1").stdout)["embeddings"]
        found = server.post("/v1/embeddings", {"input": texts, "model": "s"})
        for data, vector in zip(found["data"], expected, strict=True):
            bits = [struct.pack(f"{len(v)}f", *v) for v in (data["embedding"], vector)]
            self.assertEqual(*bits)
        encoded = server.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"})
        self.assertEqual(base64.b64decode(encoded["data"][1]["embedding"]), bits[0])
        error, _ = server.refuses(400, {"prompt": "a"})
        self.assertIn("is an encoder", error["message"])
        server.refuses(405, None, "/v1/embeddings", "GET")
        server.process.terminate()
        self.assertEqual(server.process.wait(), 0)
        self.assertEqual(self.verify(self.path("receipts"), model=self.path("s.moe"))[:2], (0, ["2 receipts: 2 the same, 0 different"]))
        receipts = self.lines()
        receipts[0]["hash"] = receipts[0]["hash"][::-1]
        self.assertEqual(self.verify(self.write(receipts), model=self.path("s.moe"))[1][0], f"{self.path('changed')}:1: the vectors differ")

    def test_scores_are_those_of_rerank(self):
        model, passages = self.path("pairs.moe"), ["birds", "the big cat", "a dog sat", "cat " * 60]
        self.ok("convert", PAIRS, model, "--weights", "f32")
        server = Server(self, "--log-receipts", self.path("receipts"), model=model)
        given = [argument for passage in passages for argument in ("-p", passage)]
        lines = self.ok("rerank", model, "-q", "the cat", *given, "--json", "--threads", "1").stdout.splitlines()
        expected = [(j["index"], struct.pack("f", j["score"])) for j in map(json.loads, lines)]
        request = {"query": "the cat", "documents": passages, "model": "pairs"}
        for path in ("/v1/rerank", "/rerank"):
            found = server.post(path, request)["results"]
            self.assertEqual([(r["index"], struct.pack("f", r["relevance_score"])) for r in found], expected)
            self.assertEqual([r["index"] for r in found if "cut_tokens" in r], [3])
        error, _ = server.refuses(400, {"input": ["a"]}, "/v1/rerank")
        self.assertEqual(error["param"], "input")
        error, _ = server.refuses(400, {"prompt": "a"})
        self.assertIn("answers /v1/rerank", error["message"])
        self.assertEqual(server.metric("moe_requests_total"), 2)
        server.process.terminate()
        self.assertEqual(server.process.wait(), 0)
        self.assertEqual(self.verify(self.path("receipts"), model=model)[:2], (0, ["2 receipts: 2 the same, 0 different"]))
        receipts = self.lines()
        self.assertEqual([r["endpoint"] for r in receipts], ["/v1/rerank"] * 2)
        receipts[1]["hash"] = receipts[1]["hash"][::-1]
        self.assertEqual(self.verify(self.write(receipts), model=model)[1][0], f"{self.path('changed')}:2: the scores differ")

    def test_clients_that_go_away_get_no_vectors(self):
        self.ok("convert", SENTENCES, self.path("s.moe"), "--weights", "f32")
        server = Server(self, model=self.path("s.moe"))
        c = server.connect()
        c.sendall(request_text({"input": ["the cat sat on the mat"] * 2048}, "/v1/embeddings"))
        server.wait_for_metric("moe_requests_total", 1)
        c.close()
        server.wait_for_metric("moe_requests_waiting", 0)
        server.wait_for_metric("moe_requests_running", 0)

    def test_pages_of_a_model(self):
        server = Server(self, "--name", "a/b c")
        for path in ("/v1/models/a/b%20c", "/v1/models/a%2Fb%20c"):
            status, _, text = server.ask("GET", path)
            self.assertEqual((status, json.loads(text)["id"]), (200, "a/b c"))
        for path in ("/v1/models/other", "/v1/models/", "/v1/models/a%2Fb%20c%00"):
            error, _ = server.refuses(404, None, path, "GET")
            self.assertEqual(error["code"], "model_not_found")
        server.complete("The dog", max_tokens=4)
        statistics = json.loads(server.ask("GET", "/statistics")[2])
        self.assertEqual((statistics["model"], statistics["generated_tokens"], len(statistics["layers"])), ("a/b c", 4, 4))


if __name__ == "__main__":
    main()
