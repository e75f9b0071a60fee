#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loads moe serve with many clients and compares every text with those of moe generate and moe chat.

    python3 tests/bench/serve_load.py build/release/bin/moe --clients 64 --requests 10000

The requests are a mix of endpoints, whole and in streams, with and without drafts, of bad requests, and of clients
that go away before or in the middle of their answers; some go on where the one before ended. They go to five servers,
one after the other: with an empty folder of texts (cold, then warm), with the folder of the one before and a single
slot, under a memory cap, without reuse, and with two clients. A text is drafted only while it is alone: always in a
single slot, and now and then with two clients. Ends with status 1 if an answer is wrong or missing, if a slot stays
taken, or if memory grows.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/stories.moe"
PROMPTS = ("Once upon a time", "The dog", "One day, a girl called Lily went to the park. ", "Tom and his cat",
           "The dog ran to the tree. The dog ran to the tree. The dog ran", "Once upon a time there was a house. " * 10)
GROWTH = 8 << 20  # bytes that memory may vary by, once a fifth of the requests is done


def command(moe, *args, text=None):
    return subprocess.run([moe, *map(str, args)], input=text, capture_output=True, text=True, check=True, timeout=600).stdout


class Case:
    """A request with a known text, that of no other case."""

    def __init__(self, moe, prompt, chat, temperature, penalty, seed, n):
        self.prompt, self.chat, self.next = prompt, chat, None
        self.settings = {"temperature": temperature, "repetition_penalty": penalty, "seed": seed, "max_tokens": n, "top_p": 1, "min_p": 0}
        sampling = ("--temp", temperature, "--repetition-penalty", penalty, "--seed", seed, "--top-p", 1, "--min-p", 0, "-n", n)
        if chat:
            line = command(moe, "chat", MODEL, "--template", "plain", *sampling, text=prompt + "\n")
            self.expected = line.removesuffix("\n")
        else:
            self.expected = command(moe, "generate", MODEL, "-p", prompt, "--no-echo", *sampling).removesuffix("\n")

    def body(self, kind):
        """The path and the request of an endpoint."""
        turns = [{"role": "user", "content": self.prompt}]
        settings = dict(self.settings)
        if not self.chat:
            return "/v1/completions", {"prompt": self.prompt, **settings}
        if kind == "responses":
            settings["max_output_tokens"] = settings.pop("max_tokens")
            return "/v1/responses", {"input": self.prompt, **settings}
        return ("/v1/messages" if kind == "messages" else "/v1/chat/completions"), {"messages": turns, **settings}


def text_of(path, answer):
    """The text of a whole answer of this endpoint."""
    if path == "/v1/completions":
        return answer["choices"][0]["text"]
    if path == "/v1/chat/completions":
        return answer["choices"][0]["message"]["content"]
    if path == "/v1/responses":
        return "".join(part["text"] for item in answer["output"] for part in item["content"])
    return "".join(block["text"] for block in answer["content"])


def text_of_event(path, event):
    """The text in an event of a stream of this endpoint, and whether it is the last event."""
    if path == "/v1/completions":
        return event["choices"][0]["text"], False  # a line [DONE] follows the last one
    if path == "/v1/chat/completions":
        return event["choices"][0]["delta"].get("content", ""), False
    kind = event["type"]
    if path == "/v1/responses":
        return event["delta"] if kind == "response.output_text.delta" else "", kind in ("response.completed", "response.incomplete")
    return event["delta"]["text"] if kind == "content_block_delta" else "", kind == "message_stop"


def text_of_events(path, lines):
    """The text of a stream of this endpoint; None: it did not end as it must."""
    text, ended = "", False
    for line in lines:
        if not line.startswith(b"data: "):
            continue
        if ended:
            return None
        if line == b"data: [DONE]":
            ended = path.endswith("completions")
            continue
        piece, ended = text_of_event(path, json.loads(line[6:]))
        text += piece
    return text if ended else None


class Server:
    def __init__(self, moe, *args):
        self.log = tempfile.TemporaryFile("a+")  # reading moves the position that both processes write at
        self.process = subprocess.Popen([moe, "serve", MODEL, "--port", "0", "--template", "plain", *args], stderr=self.log)
        deadline = time.monotonic() + 120
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", self.text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server does not start: {self.text()}")
            time.sleep(0.02)
        self.port = int(found[1])

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def metrics(self):
        connection = self.connect()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return {m[1]: float(m[2]) for m in re.finditer(r"^(moe_\w+?)(?:{[^}]*})? ([\d.e+-]+)$", text, re.MULTILINE)}

    def rss(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10

    def end(self):
        """SIGTERM drains."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(300)
        return [] if status == 0 else [f"the server ended with status {status}: {self.text()}"]


class Load:
    """Sends n requests with this number of clients; gathers what went wrong."""

    def __init__(self, server, cases, clients, n, seed):
        self.server, self.cases, self.clients, self.n = server, cases, clients, n
        self.faults, self.memory = [], []
        self.counts = {"whole": 0, "streams": 0, "tokenized": 0, "refused": 0, "went away": 0}
        self.lock = threading.Lock()
        self.seed = seed
        self.n_done = 0
        self.local = threading.local()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def connection(self):
        if not hasattr(self.local, "connection"):
            self.local.connection = self.server.connect()
        return self.local.connection

    def send(self, path, body, connection=None):
        connection = connection or self.connection()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def ask(self, i):
        rng = random.Random(self.seed * 1_000_003 + i)
        case, kind = rng.choice(self.cases), rng.choice(("chat", "messages", "responses"))
        path, body = case.body(kind)
        draft = rng.choice((None, 0, 4, 16))
        if draft is not None:
            body["draft"] = draft
        what = rng.random()
        try:
            if what < 0.05:
                self.tokenize(case)
            elif what < 0.1:
                self.refused(path, body, rng)
            elif what < 0.25:
                self.go_away(path, body, rng)
            else:
                self.answered(case, path, body, what < 0.6)
                if case.next is not None:
                    self.answered(case.next, path, {**body, **case.next.body(kind)[1]}, what < 0.6)
        except Exception as e:  # whatever happens is a fault of the server
            self.fault(f"request {i}, {path}: {type(e).__name__}: {e}")
            self.local.__dict__.pop("connection", None)
        with self.lock:
            self.n_done += 1
            if self.n_done % max(1, self.n // 50) == 0:
                self.memory.append(self.server.rss())

    def check(self, case, path, answer, text):
        if text != case.expected:
            self.fault(f"{path} {case.prompt[:20]!r} {case.settings}: {text!r}, expected {case.expected!r}; {str(answer)[:300]}")

    def answered(self, case, path, body, stream):
        if stream:
            lines = self.send(path, {**body, "stream": True}).read().split(b"\n")
            self.check(case, path, lines, text_of_events(path, lines))
        else:
            answer = json.loads(self.send(path, body).read())
            self.check(case, path, answer, None if answer.get("error") else text_of(path, answer))
        self.count("streams" if stream else "whole")

    def tokenize(self, case):
        answer = json.loads(self.send("/tokenize", {"prompt": case.prompt}).read())
        if answer.get("count") != len(answer.get("tokens", ())) or not answer["count"]:
            self.fault(f"/tokenize: {answer}")
        self.count("tokenized")

    def refused(self, path, body, rng):
        bad = rng.choice(({"temperature": -1}, {"draft": 17}, {"tempreature": 1}, {"stream": 5}, {"seed": "a"}))
        response = self.send(path, {**body, **bad})
        error = json.loads(response.read())
        if response.status != 400 or error["error"]["param"] != next(iter(bad)):
            self.fault(f"{path} {bad}: {response.status} {error}")
        self.count("refused")

    def go_away(self, path, body, rng):
        """Closes the connection at once, or after a few events."""
        connection = self.server.connect()
        body = {**body, "stream": True}
        if rng.random() < 0.5:
            response = self.send(path, body, connection)
            for _ in range(rng.randrange(1, 8)):
                response.readline()
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        connection.close()
        self.count("went away")

    def run(self):
        before, begin = self.server.metrics(), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.clients) as pool:
            list(pool.map(self.ask, range(self.n)))
        seconds = time.monotonic() - begin
        deadline = time.monotonic() + 60
        while True:  # those that went away
            after = self.server.metrics()
            if after["moe_requests_running"] == after["moe_requests_waiting"] == 0:
                break
            if time.monotonic() > deadline:
                self.fault(f"slots stay taken: {after}")
                break
            time.sleep(0.1)
        change = {k: after[k] - before.get(k, 0) for k in after}
        taken, answered = change["moe_requests_total"], change["moe_requests_answered_total"]
        cancelled, failed = change["moe_requests_cancelled_total"], change["moe_requests_failed_total"]
        sure = self.counts["whole"] + self.counts["streams"]
        refused = change["moe_requests_refused_total"]
        if refused != self.counts["refused"]:
            self.fault(f"{refused} requests were refused, expected {self.counts['refused']}")
        if failed or taken != answered + cancelled or not sure <= answered <= sure + self.counts["went away"]:
            self.fault(f"{sure} should be answered; taken {taken}, answered {answered}, cancelled {cancelled}, failed {failed}")
        steady = self.memory[len(self.memory) // 5:]
        if steady and max(steady) - steady[0] > GROWTH:
            self.fault(f"memory grows: {[m >> 10 for m in self.memory]} KiB")
        tokens = change["moe_generated_tokens_total"]
        print(f"  {self.n} requests in {seconds:.0f} s, {tokens / seconds:.0f} tokens/s, {tokens:.0f} tokens in {change['moe_steps_total']:.0f} steps: {', '.join(f'{v} {k}' for k, v in self.counts.items())}; "
              f"{cancelled:.0f} cancelled, {change['moe_prompt_tokens_reused_total']:.0f} of "
              f"{change['moe_prompt_tokens_reused_total'] + change['moe_prompt_tokens_total']:.0f} prompt tokens reused; "
              f"memory {min(steady or [0]) / 2**20:.1f} to {max(steady or [0]) / 2**20:.1f} MiB; {len(self.faults)} faults", flush=True)
        return self.faults


def make_cases(moe):
    cases = []
    for prompt in PROMPTS:
        for chat in (False, True):
            for temperature, penalty in ((0, 1), (0.8, 1), (0.8, 0.5)):  # the last repeats itself: drafts are right
                i = len(cases)
                case = Case(moe, prompt.strip() + " today" if chat else prompt, chat, temperature, penalty, 3 + i, 8 + 7 * i % 30)
                cases.append(case)
                if not chat:
                    case.next = Case(moe, prompt + case.expected + " Then", chat, temperature, penalty, 90 + i, 9 + i)
    texts = [case.expected for case in cases] + [case.next.expected for case in cases if case.next is not None]
    if len(set(texts)) < len(texts):
        sys.exit("two cases have the same text: answers that are mixed up would not be seen")
    return cases


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("moe", help="the command to load")
    p.add_argument("--reference", help="the command that makes the expected texts (default the same)")
    p.add_argument("--clients", type=int, default=64, help="that send at the same time; two to the last server (default 64)")
    p.add_argument("--requests", type=int, default=10000, help="to all servers, without those that go on where another ended; at least 6 (default 10000)")
    p.add_argument("--seed", type=int, default=1, help="of the choice of requests (default 1)")
    o = p.parse_args()
    if o.clients < 1 or o.requests < 6:
        p.error(f"expected at least 1 client and 6 requests, found {o.clients} and {o.requests}")
    cases = make_cases(o.reference or o.moe)
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        texts = os.path.join(folder, "texts")
        for name, parts, clients, args in (
                ("cold, then warm", 2, o.clients, ("--cache", texts)),
                ("after a restart, with its folder, in one slot", 1, o.clients, ("--cache", texts, "--slots", "1")),
                ("under a cap of 6 MB", 1, o.clients, ("--memory", "6M")),
                ("without reuse", 1, o.clients, ("--no-reuse",)),
                ("with drafts by default, two clients", 1, 2, ("--draft", "8"))):
            print(f"{name}: moe serve {' '.join(args).replace(folder + os.sep, '')}", flush=True)
            # Requests of clients that went away wait for a while beside those of the others.
            server = Server(o.moe, *args, "--max-waiting", str(max(64, 8 * clients)))
            for _ in range(parts):
                faults += Load(server, cases, clients, o.requests // 6, o.seed).run()
            faults += server.end()
    for fault in faults[:20]:
        print(fault)
    print(f"{len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
