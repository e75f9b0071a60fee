#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several models in one moe serve: opened on first use, closed when idle or for others."""

import concurrent.futures
import json
import os
import re
import signal
import time

from serve_test import ENDLESS, PROMPTS, Server, read_answer, request_text
from support import CHAT, MODEL, Cli, main

SENTENCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/encoders/sentences")


class Several(Server):
    def __init__(self, test, *args, env=None, **models):
        self.test = test
        named = [word for name, path in models.items() for word in ("--model", f"{name}={path}")]
        super().__init__(test, *named[2:], *args, "--template", "plain", model=named[:2], env=env)

    def is_open(self):
        return {m["id"]: m["open"] for m in json.loads(self.ask("GET", "/v1/models")[2])["data"]}

    def wait_until_open_are(self, *names):
        for _ in range(1000):
            if [name for name, is_open in self.is_open().items() if is_open] == list(names):
                return
            time.sleep(0.02)
        self.test.fail(self.is_open())

    def hold_back_b_while_a_is_in_use(self, meanwhile=0):
        """Model b is refused while a generates a text, and opened when that client has gone."""
        with self.connect() as busy:
            busy.sendall(request_text({**ENDLESS, "model": "a"}))
            self.wait_until_open_are("a")
            error, headers = self.refuses(503, {"prompt": "a", "model": "b"})
            self.test.assertIn("while others are in use", error["message"])
            self.test.assertEqual(headers["Retry-After"], "1")
            time.sleep(meanwhile)
            self.wait_until_open_are("a")
        for _ in range(100):
            if self.ask("POST", "/v1/completions", {"prompt": "The dog", "model": "b"})[0] == 200:
                break
            time.sleep(0.05)
        self.wait_until_open_are("b")


class Models(Cli):
    def alone(self, prompt, n=8):
        return self.ok("generate", MODEL, "-p", prompt, "--no-echo", "-n", str(n)).stdout[:-1]

    def test_each_is_opened_by_its_first_request(self):
        self.ok("convert", SENTENCES, self.path("s.moe"), "--weights", "f32")
        server = Several(self, a=MODEL, vectors=self.path("s.moe"), b=MODEL)
        self.assertIn("serving a, vectors, b at", server.text())
        self.assertEqual(server.is_open(), {"a": False, "vectors": False, "b": False})
        self.assertEqual(server.complete("The dog", max_tokens=8, model="a"), self.alone("The dog"))
        self.assertEqual(server.is_open(), {"a": True, "vectors": False, "b": False})
        found = server.post("/v1/embeddings", {"input": "the cat", "model": "vectors"})
        self.assertEqual((found["model"], len(found["data"][0]["embedding"])), ("vectors", 24))
        turn = [{"role": "user", "content": "The dog"}]
        events = server.named_stream("/v1/messages", {"model": "b", "messages": turn, "max_tokens": 4})
        self.assertEqual(events[0]["message"]["model"], "b")
        server.wait_until_open_are("a", "vectors", "b")
        chunks = server.stream("/v1/chat/completions", {"model": "a", "messages": turn, "max_tokens": 4})
        self.assertEqual(chunks[0]["model"], "a")
        metrics = server.ask("GET", "/metrics")[2]
        self.assertEqual(re.findall(r'^moe_requests_total\{model="(\w+)"\} (\d+)', metrics, re.M), [("a", "2"), ("vectors", "1"), ("b", "1")])
        self.assertEqual(metrics.count("# TYPE moe_requests_total "), 1)
        self.assertEqual(json.loads(server.ask("GET", "/statistics?model=vectors")[2])["model"], "vectors")
        self.assertEqual(json.loads(server.ask("GET", "/v1/models/b")[2])["open"], True)

    def test_names(self):
        server = Several(self, a=MODEL, b=MODEL)
        for body, status, code in (({"prompt": "a"}, 400, "missing_required_parameter"), ({"prompt": "a", "model": "c"}, 404, "model_not_found"),
                                   ({"prompt": "a", "model": 5}, 400, "missing_required_parameter"), ("{", 400, "missing_required_parameter"),
                                   ('{"x": {"model": "a"}, "prompt": "a"}', 400, "missing_required_parameter"),
                                   ('["model", "a"]', 400, "missing_required_parameter"), ("[" * 100000, 400, "missing_required_parameter")):
            error, _ = server.refuses(status, body)
            self.assertEqual((error["param"], error["code"]), ("model", code), body)
            self.assertIn("'a', 'b'", error["message"])
        self.assertEqual(server.is_open(), {"a": False, "b": False})
        error, _ = server.refuses(400, '{"model": "a", "model": "b", "prompt": "a"}')
        self.assertIn("twice", error["message"])
        self.assertEqual(server.refuses(400, '{"model": "a", "prompt"')[0]["param"], None)
        server.refuses(404, None, "/statistics?model=c", "GET")
        status, _, text = server.ask("POST", "/v1/messages", {"model": "c", "max_tokens": 1, "messages": []})
        self.assertEqual((status, json.loads(text)["type"], json.loads(text)["error"]["param"]), (404, "error", "model"))

    def test_idle_ones_are_closed(self):
        server = Several(self, "--close-seconds", "1", a=MODEL, b=MODEL)
        before = server.complete("The dog", model="a")
        for _ in range(4):  # a request may come while the model is still being closed
            server.wait_until_open_are("a")
            server.wait_until_open_are()
            self.assertEqual(server.complete("The dog", model="a"), before)

    def test_one_makes_room_for_another(self):
        server = Several(self, "--max-open", "1", a=MODEL, b=MODEL, c=MODEL)
        for name in ("a", "b", "c", "a"):
            self.assertEqual(server.complete("The dog", max_tokens=8, model=name), self.alone("The dog"))
            server.wait_until_open_are(name)

    def test_room_is_there_with_the_answer(self):
        server = Several(self, "--max-open", "1", a=MODEL, b=MODEL)
        for i in range(60):
            server.complete("The dog", max_tokens=1, model="ab"[i % 2])
            server.stream("/v1/completions", {"prompt": "The dog", "max_tokens": 1, "model": "ab"[i % 2]})

    def test_one_that_fails_starves_no_other(self):
        with open(self.path("bad.moe"), "wb") as f:
            f.write(b"moe" * 100)
        server = Several(self, "--max-open", "1", bad=self.path("bad.moe"), a=MODEL, b=MODEL)
        ended = False

        def retry():
            while not ended:
                server.ask("POST", "/v1/completions", {"prompt": "a", "model": "bad"})

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(8):
                pool.submit(retry)
            try:
                for i in range(10):
                    server.complete("The dog", max_tokens=1, model="ab"[i % 2])
            finally:
                ended = True

    def test_the_end_while_a_model_is_opened(self):
        for wait in (0, 0.001, 0.002, 0.004, 0.008, 0.016):
            server = Several(self, a=MODEL)
            s = server.connect()
            s.sendall(request_text({**ENDLESS, "model": "a"}))
            time.sleep(wait)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(1.1)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(60), 0, server.text())

    def test_a_converted_folder_whose_conversion_was_removed(self):
        old = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = self.path("cache")
        try:
            server = Several(self, "--close-seconds", "1", vectors=SENTENCES, a=MODEL)
            for _ in range(2):
                server.post("/v1/embeddings", {"input": "the cat", "model": "vectors"})
                server.wait_until_open_are()
                self.ok("cache", "--clear")
        finally:
            if old is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = old

    def test_those_in_use_stay(self):
        server = Several(self, "--max-open", "1", "--close-seconds", "1", a=MODEL, b=MODEL)
        server.hold_back_b_while_a_is_in_use(meanwhile=1.5)

    def test_many_clients_of_all(self):
        """They switch between models all the time, and some go away."""
        server = Several(self, "--max-open", "2", a=MODEL, b=MODEL, c=MODEL)
        expected = {prompt: self.alone(prompt, 5) for prompt in PROMPTS}

        def ask(i):
            prompt, body = PROMPTS[i % 5], {"temperature": 0, "max_tokens": 5, "model": "abc"[i % 3], "stream": i % 2 == 0}
            if i % 7 == 0:
                s = server.connect()
                s.sendall(request_text({**body, "prompt": prompt}))
                s.close()
                return
            for _ in range(1000):
                status, _, text = server.ask("POST", "/v1/completions", {**body, "prompt": prompt})
                if status != 503:
                    break
                time.sleep(0.01)
            self.assertEqual(status, 200, text)
            parts = [json.loads(e[6:]) for e in text.split("\n\n") if e.startswith("data: {")] if body["stream"] else [json.loads(text)]
            self.assertEqual("".join(c["text"] for part in parts for c in part["choices"]), expected[prompt])

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            list(pool.map(ask, range(300)))
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(60), 0)
        self.assertNotIn("no room for", server.text().replace("no room for model", ""))

    def test_files_that_are_none(self):
        with open(self.path("bad.moe"), "wb") as f:
            f.write(b"moe" * 100)
        server = Several(self, a=MODEL, bad=self.path("bad.moe"))
        error, _ = server.refuses(500, {"prompt": "a", "model": "bad"})
        self.assertIn("model 'bad' cannot be opened", error["message"])
        self.assertNotIn(self.path("bad.moe"), error["message"])
        self.assertIn(f"moe: bad: {self.path('bad.moe')}", server.text())
        self.assertEqual(server.complete("The dog", max_tokens=8, model="a"), self.alone("The dog"))
        self.fails(1, "serve", "--port", "0", "--model", "a=" + self.path("none.moe"), contains=["none.moe: No such file"])

    def test_the_end_while_requests_run(self):
        server = Several(self, a=MODEL, b=MODEL)
        s = server.connect()
        s.sendall(request_text({"prompt": "Once", "max_tokens": 300, "n": 8, "ignore_eos": True, "model": "b"}))
        server.wait_until_open_are("b")
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(read_answer(s.makefile("rb"))[0], 200)
        self.assertEqual(server.process.wait(60), 0)

    def test_receipts_name_their_model(self):
        server = Several(self, "--log-receipts", self.path("r"), a=MODEL, b=MODEL)
        for name in "ab":
            server.complete("The dog", model=name)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        r = self.ok("verify", MODEL, self.path("r"), "--template", "plain")
        self.assertEqual(r.stdout, "2 receipts: 2 the same, 0 different\n")

    def test_command_lines(self):
        self.fails(2, "serve", "--port", "0", contains=["MODEL is missing", "--model NAME=FILE"])
        self.fails(2, "serve", "--port", "0", "--model", "a", contains=["expected NAME=FILE, found 'a'"])
        self.fails(2, "serve", "--port", "0", "--model", "=a", contains=["expected NAME=FILE"])
        self.fails(2, "serve", "--port", "0", MODEL, "--model", f"a={MODEL}", contains=["--model"])
        self.fails(2, "serve", "--port", "0", "--name", "b", "--model", f"a={MODEL}", contains=["--name"])
        self.fails(2, "serve", "--port", "0", "--model", f"a={MODEL}", "--model", f"a={MODEL}", contains=["'a' is there twice"])
        self.fails(2, "serve", "--port", "0", MODEL, "--max-open", "2", contains=["--max-open"])

    def test_a_model_that_thinks(self):
        self.ok("convert", CHAT, self.path("script.moe"), "--weights", "f32")
        server = Several(self, a=MODEL, script=self.path("script.moe"))
        answer = server.post("/v1/completions", {"prompt": "a", "model": "script", "max_tokens": 1})
        self.assertEqual(answer["model"], "script")


if __name__ == "__main__":
    main()
