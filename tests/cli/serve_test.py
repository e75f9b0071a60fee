#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe serve: answers, streams, refusals, clients that misbehave or go away, its end."""

import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import time

from support import CHAT, MODEL, MOE, Cli, main

JSON = {"Content-Type": "application/json"}
PROMPTS = ["Once upon a time", "The dog", "Lily and Tom went to the park", "One day, a little girl", "A bird"]
NUMBERS = itertools.count()  # of servers, each of which has its own log
# Works for minutes in one slot, unless it is cancelled.
ENDLESS = {"prompt": "Once", "max_tokens": 400, "n": 60, "ignore_eos": True}


class Server:
    """The command in the background. Ends it with the test."""

    def __init__(self, test, *args, model=MODEL, before=None, env=None):
        """model: of the command line, a word or several. before: what the process calls before it becomes the command."""
        self.test = test
        where = () if "--unix" in args or "--port" in args else ("--port", "0")
        if model == MODEL:
            args = ("--template", "plain", *args)
        self.log = open(test.path(f"serve{next(NUMBERS)}.log"), "w", encoding="utf-8")
        self.process = subprocess.Popen([MOE, "serve", *([model] if isinstance(model, str) else model), *where, *args], stderr=self.log, stdin=subprocess.DEVNULL, preexec_fn=before, env=env)
        test.addCleanup(self.kill)
        found = self.wait_for_text(r"serving .+ at (?:http://([\d.]+):(\d+)|unix:(\S+))\n(?s:.*)(?:defaults for requests|each model is opened)")
        self.host, self.port, self.path = found[1], int(found[2] or 0), found[3]

    def text(self):
        with open(self.log.name, encoding="utf-8") as log:
            return log.read()

    def wait_for_text(self, pattern):
        for _ in range(3000):
            found = re.search(pattern, self.text())
            if found:
                return found
            self.test.assertIsNone(self.process.poll(), self.text())
            time.sleep(0.02)
        return self.test.fail(f"no {pattern!r} in {self.text()!r}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def connect(self):
        if self.path:
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.path)
        else:
            s = socket.create_connection((self.host, self.port))
        s.settimeout(120)
        self.test.addCleanup(s.close)
        return s

    def ask(self, method, url, body=None, headers=None):
        """Status, headers and text of an answer."""
        c = http.client.HTTPConnection(self.host or "localhost", self.port, timeout=120)
        if self.path:
            c.sock = self.connect()
        with contextlib.closing(c):
            text = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
            c.request(method, url, text, {**JSON, **(headers or {})})
            answer = c.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()

    def post(self, url, body, **headers):
        status, _, text = self.ask("POST", url, body, headers)
        self.test.assertEqual(status, 200, text)
        return json.loads(text)

    def complete(self, prompt, **settings):
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **settings})["choices"][0]["text"]

    def refuses(self, status, body, url="/v1/completions", method="POST", **headers):
        found, fields, text = self.ask(method, url, body, headers)
        self.test.assertEqual(found, status, text)
        error = json.loads(text)["error"]
        self.test.assertEqual(set(error), {"message", "type", "param", "code"})
        return error, fields

    def stream(self, url, body):
        """The events of a stream."""
        status, headers, text = self.ask("POST", url, {**body, "stream": True})
        self.test.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), text)
        events = [e for e in text.split("\n\n") if e and not e.startswith(":")]
        self.test.assertTrue(all(e.startswith("data: ") for e in events), text)
        self.test.assertEqual(events[-1], "data: [DONE]")
        return [json.loads(e[len("data: "):]) for e in events[:-1]]

    def named_stream(self, url, body):
        """The events of a stream whose events have names, which are their types."""
        status, headers, text = self.ask("POST", url, {**body, "stream": True})
        self.test.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), text)
        self.test.assertTrue(text.endswith("\n\n"), text)
        events = []
        for event in text.split("\n\n")[:-1]:
            if event.startswith(":"):
                continue
            name, data = event.split("\n")
            events.append(json.loads(data.removeprefix("data: ")))
            self.test.assertEqual(name, "event: " + events[-1]["type"])
        return events

    def metric(self, name):
        return float(re.search(rf"^{name} (.*)$", self.ask("GET", "/metrics")[2], re.M)[1])

    def wait_for_metric(self, name, value):
        for _ in range(3000):
            if self.metric(name) == value:
                return
            time.sleep(0.02)
        self.test.fail(f"{name} is {self.metric(name)}, not {value}")

    def n_sockets(self):
        """Those that the process has open, with the one that it listens at."""
        folder = f"/proc/{self.process.pid}/fd"
        n = 0
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                n += os.readlink(f"{folder}/{name}").startswith("socket:")
        return n

    def wait_for_sockets(self, n):
        for _ in range(1000):
            if self.n_sockets() == n:
                return
            time.sleep(0.02)
        self.test.fail(f"{self.n_sockets()} sockets are open, not {n}")


def request_text(body, url="/v1/completions", extra=""):
    body = json.dumps(body)
    return (f"POST {url} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def read_answer(file):
    """Status and body of the next answer of a connection; None at its end."""
    line = file.readline()
    if not line:
        return None
    length = 0
    for header in iter(file.readline, b"\r\n"):
        if header.lower().startswith(b"content-length:"):
            length = int(header.split(b":")[1])
    return int(line.split()[1]), file.read(length).decode()


class Answers(Cli):
    def generate(self, prompt, *args):
        return self.ok("generate", MODEL, "-p", prompt, "--no-echo", *args).stdout

    def test_texts_are_those_of_the_command(self):
        server = Server(self)
        self.assertEqual(server.complete(PROMPTS[0], max_tokens=20) + "\n", self.generate(PROMPTS[0], "-n", "20"))
        self.assertEqual(server.complete(PROMPTS[1], max_tokens=30, temperature=0.9, top_k=8, seed=5, top_p=1, min_p=0) + "\n",
                         self.generate(PROMPTS[1], "-n", "30", "--temp", "0.9", "--top-k", "8", "--seed", "5"))
        chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPTS[2]}], "seed": 7,
                                                    "max_tokens": 20})
        line = self.ok("chat", MODEL, "--template", "plain", "--seed", "7", "-n", "20", text=PROMPTS[2] + "\n").stdout
        self.assertEqual(chat["choices"][0]["message"], {"role": "assistant", "content": line.removesuffix("\n")})
        self.assertEqual(chat["model"], "stories")
        self.assertEqual(chat["sampling"], {"temperature": 0.8, "top_k": 0, "top_p": 0.95, "min_p": 0.05,
                                            "repetition_penalty": 1.0, "seed": 7})
        self.assertNotIn("park", server.text())  # nothing of a request is written

    def test_streams(self):
        server = Server(self)
        for url, body in (("/v1/completions", {"prompt": PROMPTS[0]}),
                          ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPTS[0]}]})):
            body.update(temperature=0, max_tokens=12, n=2)
            whole = server.post(url, body)
            events = server.stream(url, {**body, "stream_options": {"include_usage": True}})
            for i in (0, 1):
                parts = [c.get("text") or c.get("delta", {}).get("content", "") for e in events for c in e["choices"] if c["index"] == i]
                choice = whole["choices"][i]
                self.assertEqual("".join(parts), choice["text"] if "text" in choice else choice["message"]["content"])
                self.assertGreater(len(parts), 10)  # a piece for each token
            self.assertEqual(events[-1]["usage"], whole["usage"])
            self.assertEqual(len({e["id"] for e in events}), 1)

    def test_many_clients(self):
        server = Server(self, "--slots", "4")
        requests = [(PROMPTS[i % 5], {"max_tokens": 5 + i % 11, "seed": i, "temperature": 0 if i % 2 else 1}) for i in range(20)]
        alone = [server.complete(p, **s) for p, s in requests]
        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            def ask(i):
                prompt, settings = requests[i % 20]
                if i % 3 == 0:
                    events = server.stream("/v1/completions", {"prompt": prompt, **settings})
                    return "".join(c["text"] for e in events for c in e["choices"])
                return server.complete(prompt, **settings)
            for i, text in enumerate(clients.map(ask, range(60))):
                self.assertEqual(text, alone[i % 20])
        server.wait_for_metric("moe_requests_answered_total", 80)
        server.wait_for_metric("moe_requests_running", 0)

    def test_prompts_reuse_what_they_have_in_common(self):
        for options, reused in ((), 4), (("--no-reuse",), 0):
            server = Server(self, "--slots", "2", *options)
            request = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
            answers = [server.post("/v1/completions", request) for _ in range(2)]
            self.assertEqual(answers[0]["choices"], answers[1]["choices"])
            self.assertEqual([a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers], [0, reused])
            self.assertEqual(server.metric("moe_prompt_tokens_reused_total"), reused)

    def test_a_folder_keeps_texts(self):
        folder = self.path("texts")
        request = {"prompt": "Once upon a time there was a dog. " * 12, "max_tokens": 4, "temperature": 0}
        answers = []
        for _ in range(2):
            server = Server(self, "--slots", "1", "--cache", folder)
            answers.append(server.post("/v1/completions", request))
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(60), 0)
            self.assertEqual(len(os.listdir(folder)), 1)
        self.assertEqual(answers[0]["choices"], answers[1]["choices"])
        usage = [a["usage"] for a in answers]
        self.assertEqual([u["prompt_tokens_details"]["cached_tokens"] for u in usage], [0, usage[0]["prompt_tokens"] - 1])
        self.fails(1, "serve", MODEL, "--port", "0", "--cache", MODEL, contains=["expected a folder"])
        self.fails(2, "serve", MODEL, "--port", "0", "--cache", folder, "--no-reuse", contains=["--no-reuse"])
        self.fails(2, "serve", MODEL, "--port", "0", "--cache", folder, "--cache-size", "x", contains=["--cache-size"])

    def test_a_model_that_thinks(self):
        self.ok("convert", CHAT, self.path("chat.moe"), "--weights", "f32")
        server = Server(self, "--name", "script", model=self.path("chat.moe"))
        body = {"model": "script", "messages": [{"role": "user", "content": "Hello"}]}
        message = server.post("/v1/chat/completions", body)["choices"][0]["message"]
        self.assertEqual(message, {"role": "assistant", "content": "Yes.", "reasoning_content": "ab"})
        deltas = [c["delta"] for e in server.stream("/v1/chat/completions", body) for c in e["choices"]]
        self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
        self.assertEqual("".join(d.get("reasoning_content", "") for d in deltas), "ab")
        self.assertEqual("".join(d.get("content", "") for d in deltas), "Yes.")

    def test_messages_and_responses(self):
        self.ok("convert", CHAT, self.path("chat.moe"), "--weights", "f32")
        server = Server(self, "--name", "script", model=self.path("chat.moe"))
        body = {"model": "script", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}], "system": "Be brief."}
        message = server.post("/v1/messages?beta=true", body, **{"anthropic-version": "2023-06-01", "x-api-key": "any"})
        self.assertEqual(message["content"], [{"type": "thinking", "thinking": "ab", "signature": ""}, {"type": "text", "text": "Yes."}])
        self.assertEqual(message["stop_reason"], "end_turn")
        events = server.named_stream("/v1/messages", body)
        self.assertEqual((events[0]["type"], events[-1]["type"]), ("message_start", "message_stop"))
        self.assertEqual("".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta"), "Yes.")
        usage = events[-2]["usage"]  # its prompt was in a slot
        self.assertGreater(usage["cache_read_input_tokens"], 0)
        count = server.post("/v1/messages/count_tokens", {k: v for k, v in body.items() if k != "max_tokens"})
        self.assertEqual(count, {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]})
        body = {"model": "script", "input": "Hello", "instructions": "Be brief."}
        response = server.post("/v1/responses", body)
        self.assertEqual([(i["type"], i["content"][0]["text"]) for i in response["output"]], [("reasoning", "ab"), ("message", "Yes.")])
        self.assertEqual(response["usage"]["input_tokens"], count["input_tokens"])
        events = server.named_stream("/v1/responses", body)
        self.assertEqual((events[0]["type"], events[-1]["type"]), ("response.created", "response.completed"))
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        self.assertEqual([i["content"] for i in events[-1]["response"]["output"]], [i["content"] for i in response["output"]])
        models = json.loads(server.ask("GET", "/v1/models", headers={"anthropic-version": "2023-06-01"})[2])
        self.assertEqual((models["data"][0]["type"], models["has_more"], models["last_id"]), ("model", False, "script"))

    def test_other_pages(self):
        server = Server(self, "--memory", "64M")
        self.assertIn("8 slots of 512 tokens", server.text())
        self.assertIn("the cap is 67.1 MB", server.text())
        models = json.loads(server.ask("GET", "/v1/models")[2])
        self.assertEqual([m["id"] for m in models["data"]], ["stories"])
        self.assertEqual(json.loads(server.ask("GET", "/health")[2]), {"status": "ok"})
        tokens = server.post("/tokenize", {"prompt": PROMPTS[0]})
        listed = self.ok("tokenize", MODEL, PROMPTS[0]).stdout
        self.assertTrue(all(str(t) in listed for t in tokens["tokens"]))
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        server.complete(PROMPTS[0], max_tokens=5)
        status, headers, text = server.ask("GET", "/metrics")
        self.assertEqual((status, headers["Content-Type"].split(";")[0]), (200, "text/plain"))
        for line in text.splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) moe_\w+ .+|moe_\w+ [\d.e+-]+)$")
        self.assertEqual(server.metric("moe_generated_tokens_total"), 5)
        self.assertEqual(server.metric("moe_time_to_first_token_seconds_count"), 1)
        self.assertEqual(server.metric("moe_memory_cap_bytes"), 64 << 20)


class Refusals(Cli):
    def test_requests(self):
        server = Server(self, "--max-body", "100000")
        for body, param in (({"prompt": "a", "temperature": "hot"}, "temperature"), ({"prompt": "a", "tools": [{}]}, "tools"),
                            ({"prompt": "a", "max_tokens": 10**30}, "max_tokens"), ({"prompt": "a", "max_tokens": 2**63}, "max_tokens"),
                            ({"prompt": ["a", [1]], "n": [1]}, "n"), ("[" * 90000, None), ("{", None), (b'{"prompt": "\xff"}', None),
                            ('{"prompt": "\\ud800"}', None), ("", None), ("null", None)):
            self.assertEqual(server.refuses(400, body)[0]["param"], param, body)
        self.assertEqual(server.refuses(404, {"prompt": "a", "model": "x"})[0]["code"], "model_not_found")
        self.assertEqual(server.refuses(413, "x" * 100001)[0]["code"], "body_too_large")
        self.assertEqual(server.refuses(415, "{}", **{"Content-Type": "text/plain"})[0]["code"], "unsupported_media_type")
        self.assertEqual(server.refuses(405, None, method="GET")[1]["Allow"], "POST")
        self.assertEqual(server.refuses(405, "{}", url="/health")[1]["Allow"], "GET, HEAD")
        for url in ("/page", "/v1/embedding", "/v1/completions/../x", "/v1/completions?x=1&y", "/%00"):
            if "?" not in url:
                server.refuses(404, "{}", url=url)
        self.assertEqual(server.refuses(403, "{}", Host="evil.example")[0]["code"], "host")
        self.assertEqual(server.complete(PROMPTS[0], max_tokens=3) + "\n",
                         self.ok("generate", MODEL, "-p", PROMPTS[0], "--no-echo", "-n", "3").stdout)

    def test_keys(self):
        self.fails(2, "serve", MODEL, "--host", "0.0.0.0", "--port", "0", contains=["--api-key-file"])
        keys = self.path("keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write("# of tests\nfirst\n  second \n")
        self.fails(2, "serve", MODEL, "--port", "0", "--api-key-file", keys, contains=["chmod 600"])
        os.chmod(keys, 0o600)
        server = Server(self, "--host", "0.0.0.0", "--api-key-file", keys)
        for key in ({}, {"Authorization": "Bearer third"}, {"Authorization": "first"}, {"Authorization": "Bearer "},
                    {"Authorization": "Bearer firs"}, {"Authorization": "Bearer firstfirst"}):
            error, headers = server.refuses(401, {"prompt": "a"}, **key)
            self.assertEqual((error["type"], headers["WWW-Authenticate"]), ("authentication_error", "Bearer"))
        for key in ("first", "second"):
            server.post("/v1/completions", {"prompt": "a"}, Authorization=f"Bearer {key}")
        self.assertEqual(server.ask("GET", "/metrics")[0], 401)
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        server = Server(self, "--api-key-file", keys, "--open-metrics")
        self.assertIn("moe_requests_waiting 0", server.ask("GET", "/metrics")[2])
        for url in ("/statistics", "/v1/models", "/metrics/", "/metrics/../v1/models"):
            self.assertIn(server.ask("GET", url)[0], (401, 404))
        server.refuses(401, {"prompt": "a"})
        self.fails(2, "serve", MODEL, "--open-metrics", contains=["--api-key-file"])

    def refuses_as_anthropic(self, server, status, kind, body, url="/v1/messages", method="POST", **headers):
        found, _, text = server.ask(method, url, body, headers)
        answer = json.loads(text)
        self.assertEqual((found, answer["type"], answer["error"]["type"]), (status, "error", kind), text)
        self.assertEqual(set(answer["error"]), {"message", "type", "param"})
        return answer["error"]

    def test_errors_of_each_api(self):
        keys = self.path("keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write("key\n")
        os.chmod(keys, 0o600)
        server = Server(self, "--max-body", "100000")
        body = {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}
        for url in ("/v1/messages", "/v1/messages/count_tokens"):
            self.assertEqual(self.refuses_as_anthropic(server, 400, "invalid_request_error", {"messages": 5}, url)["param"],
                             "messages" if "count" in url else "max_tokens")
            self.refuses_as_anthropic(server, 400, "invalid_request_error", "{", url)
            self.refuses_as_anthropic(server, 404, "not_found_error", {**body, "model": "x"} if "count" not in url else
                                      {"messages": body["messages"], "model": "x"}, url)
            self.refuses_as_anthropic(server, 405, "invalid_request_error", None, url, "GET")
            self.refuses_as_anthropic(server, 413, "request_too_large", "x" * 100001, url)
            self.refuses_as_anthropic(server, 415, "invalid_request_error", "{}", url, **{"Content-Type": "text/plain"})
            self.refuses_as_anthropic(server, 403, "permission_error", body, url, Host="evil.example")
        self.refuses_as_anthropic(server, 404, "not_found_error", body, "/v1/messages/batches")
        # Refused before a stream begins.
        self.assertEqual(self.refuses_as_anthropic(server, 400, "invalid_request_error", {**body, "stream": True, "tools": [{}]})["param"], "tools[0].input_schema")
        for bad, param in (({"input": "a", "tools": [{}]}, "tools[0].name"), ({}, "input"), ({"input": "a", "stream": True, "background": True}, "background")):
            self.assertEqual(server.refuses(400, bad, url="/v1/responses")[0]["param"], param)
        server = Server(self, "--api-key-file", keys)
        for headers in ({}, {"x-api-key": "no"}, {"x-api-key": "keykey"}, {"x-api-key": ""}, {"x-api-key": "Bearer key"}):
            self.refuses_as_anthropic(server, 401, "authentication_error", body, **headers)
        for headers in ({"x-api-key": "key"}, {"Authorization": "Bearer key"}):
            server.post("/v1/messages", body, **headers)
            server.post("/v1/responses", {"input": "a", "max_output_tokens": 3}, **headers)

    def test_a_full_queue(self):
        server = Server(self, "--slots", "1", "--max-waiting", "60")
        busy = server.connect()
        busy.sendall(request_text(ENDLESS))
        server.wait_for_metric("moe_requests_running", 1)
        server.post("/tokenize", {"prompt": "a"})
        error, headers = server.refuses(429, {"prompt": "a", "n": 2})
        self.assertEqual((error["type"], headers["Retry-After"]), ("rate_limit_error", "1"))

    def test_command_lines(self):
        self.fails(2, "serve", MODEL, "--host", "localhost.example", contains=["IP address"])
        self.fails(2, "serve", MODEL, "--port", "70000", contains=["65535"])
        self.fails(2, "serve", MODEL, "--unix", self.path("s"), "--port", "80", contains=["--unix"])
        self.fails(1, "serve", self.path("none.moe"), "--port", "0", contains=["none.moe"])
        self.fails(1, "serve", MODEL, "--port", "0", "--router", "gamma=1.25", contains=["depend on other requests"])
        server = Server(self)
        self.fails(1, "serve", MODEL, "--port", str(server.port), contains=["in use"])


class Clients(Cli):
    def test_those_that_go_away_free_their_slots(self):
        server = Server(self, "--slots", "1")
        for leave in ("close", "half", "reset"):
            for stream in (False, True):
                s = server.connect()
                s.sendall(request_text({**ENDLESS, "stream": stream}))
                server.wait_for_metric("moe_requests_running", 1)
                if stream:
                    self.assertIn(b"200 OK", s.recv(4096))
                if leave == "reset":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                if leave == "half":
                    s.shutdown(socket.SHUT_WR)
                else:
                    s.close()
                server.wait_for_metric("moe_requests_running", 0)
                server.complete("a", max_tokens=1)
        server.wait_for_metric("moe_requests_cancelled_total", 6)
        server.wait_for_metric("moe_requests_waiting", 0)

    def test_those_that_pipeline(self):
        server = Server(self)
        s = server.connect()
        bodies = [{"prompt": p, "temperature": 0, "max_tokens": 4} for p in PROMPTS]
        s.sendall(b"".join(map(request_text, bodies)) + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        file = s.makefile("rb")
        for body in bodies:
            status, text = read_answer(file)
            self.assertEqual((status, json.loads(text)["choices"][0]["text"]), (200, server.complete(body["prompt"], max_tokens=4)))
        self.assertEqual(read_answer(file)[0], 200)

    def test_those_that_smuggle(self):
        server = Server(self, "--idle-seconds", "2")
        hidden = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        s = server.connect()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                  + str(5 + len(hidden)).encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden)
        with contextlib.suppress(ConnectionResetError):
            self.assertNotIn(b"moe_requests", b"".join(iter(lambda: s.recv(4096), b"")))
        for bad in (b"\0\1\2\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
                    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20000 + b"\r\n"):
            s = server.connect()
            with contextlib.suppress(OSError):  # it is closed before all is sent
                s.sendall(bad)
                s.shutdown(socket.SHUT_WR)
                self.assertNotIn(b" 200 ", b"".join(iter(lambda: s.recv(4096), b"")))
        self.assertEqual(server.ask("GET", "/health")[0], 200)

    def test_those_that_are_slow(self):
        server = Server(self, "--idle-seconds", "2", "--slots", "1")
        text = request_text({"prompt": "a", "max_tokens": 1})
        slow = [server.connect() for _ in range(8)]
        for i, s in enumerate(slow):
            s.sendall(text[:20 + i * 10])
        self.assertEqual(server.metric("moe_requests_running"), 0)  # nobody waits for them
        s = server.connect()
        for byte in text[:-20]:
            s.sendall(bytes([byte]))
        s.sendall(text[-20:])
        self.assertEqual(read_answer(s.makefile("rb"))[0], 200)
        for s in slow:
            self.assertNotIn(b" 200 ", b"".join(iter(lambda: s.recv(4096), b"")))  # closed
        # A body, and headers, that trickle without a pause.
        for begun in (request_text({"prompt": "a" * 1000})[:-900], text[:20]):
            s = server.connect()
            s.sendall(begun)
            began = time.monotonic()
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                while time.monotonic() - began < 60:
                    s.sendall(b"a")
                    time.sleep(0.1)
            self.assertLess(time.monotonic() - began, 60)

    def test_a_socket_in_the_file_system(self):
        path = self.path("socket")
        server = Server(self, "--unix", path)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(server.complete("a", max_tokens=1), server.complete("a", max_tokens=1))
        self.fails(1, "serve", MODEL, "--unix", path, contains=["in use"])
        server.process.kill()
        server.process.wait()
        again = Server(self, "--unix", path)  # which the killed one has left
        again.complete("a", max_tokens=1)
        again.process.terminate()
        self.assertEqual(again.process.wait(60), 0)
        self.assertFalse(os.path.exists(path))


class End(Cli):
    def test_the_first_signal_lets_answers_finish(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            server = Server(self, "--slots", "1")
            body = {"prompt": "Once", "max_tokens": 300, "n": 3, "ignore_eos": True, "temperature": 0}
            s = server.connect()
            s.sendall(request_text(body))
            late = server.connect()
            late.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            file = late.makefile("rb")
            self.assertEqual(read_answer(file)[0], 200)
            server.wait_for_metric("moe_requests_running", 1)
            server.process.send_signal(how)
            server.wait_for_text("finishing 3 texts|finishing 2 texts|finishing 1 text")
            late.sendall(request_text({"prompt": "a"}))
            self.assertEqual(read_answer(file)[0], 503)
            with self.assertRaises(ConnectionError):
                server.connect().recv(1)
            status, text = read_answer(s.makefile("rb"))
            self.assertEqual((status, len(json.loads(text)["choices"])), (200, 3))
            self.assertEqual(server.process.wait(60), 0, server.text())

    def test_the_second_ends_at_once(self):
        server = Server(self, "--slots", "1")
        waiting = [server.connect() for _ in range(2)]
        waiting[0].sendall(request_text(ENDLESS))
        server.wait_for_metric("moe_requests_running", 1)
        waiting[1].sendall(request_text({"prompt": "a", "stream": True}))
        server.wait_for_metric("moe_requests_total", 2)
        server.process.terminate()
        server.wait_for_text("finishing [0-9]+ texts")  # 61, if none has ended yet
        time.sleep(1.2)  # earlier it counts as the same one
        server.process.terminate()
        self.assertEqual(server.process.wait(60), 0, server.text())
        self.assertEqual(read_answer(waiting[0].makefile("rb"))[0], 499)
        self.assertIn(b"cancelled", b"".join(iter(lambda: waiting[1].recv(4096), b"")))


if __name__ == "__main__":
    main()
