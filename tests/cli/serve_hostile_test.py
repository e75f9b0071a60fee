#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe serve and clients that break HTTP at random: each gets an answer or the end of its connection, and others get theirs.

With --rounds N, that many times as many clients; with --seed N, others.
"""

import concurrent.futures
import contextlib
import json
import random
import socket
import sys
import threading
import time

from serve_test import PROMPTS, Server, request_text
from support import Cli, main

PATIENCE = 30  # seconds; the server has one
OPTIONS = dict(zip(sys.argv[5::2], sys.argv[6::2]))
ROUNDS = int(OPTIONS.get("--rounds", 1))
SEED = int(OPTIONS.get("--seed", 1))
OWN_PAGES = (400, 413, 414, 431, 500, 505)  # which libmicrohttpd writes itself
SIZES = [b"-1", b"0x5", b"", b" 5", b"5 ", b"zz", b"5;" + b"x" * 40000, b"f" * 17, b"f" * 16, b"7fffffffffffffff", b"00000005", b"5\r", b"+5", b"5\0", b"4", b"6"]


def body_of(r):
    return r.choice([{"prompt": r.choice(PROMPTS), "max_tokens": r.choice([1, 3, 400]), "stream": r.random() < 0.4},
                     {"prompt": "a" * r.choice([1, 5000])}, {"prompt": [1, 2, 10**20]}, {"messages": []}, {"n": 64, "prompt": "Once"}, "[" * 3000, None])


def request(r):
    return request_text(body_of(r), url=r.choice(["/v1/completions", "/v1/chat/completions", "/tokenize", "/health", "/none"]))


def pipelined(r):
    return b"".join(request(r) for _ in range(r.randint(2, 6)))


def mutated(r):
    text = bytearray(request(r))
    for _ in range(r.randint(1, 6)):
        at, n = r.randrange(len(text)), r.randint(0, 20)
        part = r.choice([b"\0", b"\r", b"\n", b"\r\n\r\n", b": ", b" ", r.randbytes(r.randint(1, 8)), bytes(text[at:at + n]) * 2, b"\0" * 300, b"%00", b"\xff"])
        text[at:at + r.choice([0, n])] = part
        if not text:
            return b"\0"
    return bytes(text)


def chunked(r):
    text = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(r.randint(1, 3)):
        data = r.choice([b"{\"pro", b"\0" * 5, b"abcde"])
        text += r.choice(SIZES + [b"5"] * 8) + r.choice([b"\r\n", b"\n", b""]) + data + r.choice([b"\r\n", b"\n", b"", b"\r"])
    return text + r.choice([b"0\r\n\r\n", b"0\r\nContent-Length: 3\r\n\r\n", b"0\r\n:\r\n\r\n", b"0\r\n", b"0", b"", b"0\r\n" + b"a: b\r\n" * 20000])


def large_head(r):
    lines = r.choice([b"a: b\r\n" * 20000, b"x" * 200000, b"X: " + b"y" * 100000 + b"\r\n", b"Cookie: " + b"a=b;" * 9000 + b"\r\n", b"a:b\r\n" * 400, b" fold\r\n" * 900])
    return b"GET /" + r.choice([b"", b"z" * 60000, b"?" + b"a=b&" * 5000]) + b" HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n"


def wrong_length(r):
    text = request(r)
    n = text.index(b"Content-Length: ") + 16
    return text[:n] + str(r.choice([0, 1, 7, 10**5, 10**9, 10**30, -3, "1,1"])).encode() + text[text.index(b"\r\n", n):]


def noise(r):
    return r.randbytes(r.choice([1, 10, 1000, 100000]))


KINDS = [request, pipelined, mutated, mutated, mutated, chunked, chunked, large_head, wrong_length, noise]


def answers(text):
    """Status, head and body of each whole answer, and what is left."""
    found = []
    while b"\r\n\r\n" in text:
        top, rest = text.split(b"\r\n\r\n", 1)
        status, top = int(top[9:12]), top.lower()
        if b"transfer-encoding: chunked" in top:
            body = b""
            while b"\r\n" in rest and (n := int(rest.split(b"\r\n")[0], 16)):
                begin = rest.index(b"\r\n") + 2
                body, rest = body + rest[begin:begin + n], rest[begin + n + 2:]
            rest = rest.removeprefix(b"0\r\n\r\n")
        else:
            n = next((int(l.split(b":")[1]) for l in top.split(b"\r\n") if l.startswith(b"content-length:")), 0)
            body, rest = rest[:n], rest[n:]
        found.append((status, top, body))
        text = rest
    return found, text


class Hostile(Cli):
    def talk(self, server, seed):
        """One client, which ends its connection or waits for the server to do it. All that it got."""
        r = random.Random(seed)
        text = r.choice(KINDS)(r)
        s = socket.create_connection((server.host, server.port))
        s.settimeout(PATIENCE)
        how = r.choice(["whole", "whole", "pieces", "part", "half", "close", "reset"])
        got = b""
        with s, contextlib.suppress(ConnectionResetError, BrokenPipeError):
            if how in ("part", "half", "close", "reset"):
                text = text[:r.randint(1, len(text))]
            step = len(text) if how != "pieces" else max(1, len(text) // r.randint(2, 6))
            for i in range(0, len(text), step):
                s.sendall(text[i:i + step])
                if how == "pieces":
                    time.sleep(0.02)
            if how == "half":
                s.shutdown(socket.SHUT_WR)
            if how == "reset":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            while how not in ("close", "reset"):
                part = s.recv(65536)  # a timeout is a failure
                if not part:
                    break
                got += part
        return got

    def check(self, got, what):
        if got and not got.startswith(b"HTTP/1.1 "):
            self.fail(f"{what}: {got[:200]}")
        for status, head, body in answers(got)[0]:
            if b"content-type:" not in head and status != 100:
                self.assertIn(status, OWN_PAGES, what)
                return  # it writes the head of some of these twice
            if status >= 400:
                error = json.loads(body)["error"]
                self.assertEqual(set(error), {"message", "type", "param", "code"}, what)

    def test_nobody_hangs(self):
        server = Server(self, "--idle-seconds", "1", "--slots", "4", "--max-waiting", "60000", "--max-body", "100000",
                        "--max-connections", "400")
        said = server.text()
        alone = {p: server.complete(p, max_tokens=8) for p in PROMPTS}
        over = threading.Event()

        def ask():
            n = 0
            while not over.is_set():
                prompt = PROMPTS[n % len(PROMPTS)]
                self.assertEqual(server.complete(prompt, max_tokens=8), alone[prompt])
                n += 1
            return n

        with concurrent.futures.ThreadPoolExecutor(97) as clients:
            friend = clients.submit(ask)
            seeds = [f"{SEED} {i}" for i in range(480 * ROUNDS)]
            try:
                for seed, got in zip(seeds, clients.map(lambda seed: self.talk(server, seed), seeds)):
                    self.check(got, seed)
            finally:
                over.set()
            self.assertGreater(friend.result(), 0)
        server.wait_for_metric("moe_requests_running", 0)
        server.wait_for_metric("moe_requests_waiting", 0)
        server.wait_for_sockets(1)
        self.assertEqual({p: server.complete(p, max_tokens=8) for p in PROMPTS}, alone)
        self.assertEqual(server.text(), said)
        server.process.terminate()
        self.assertEqual(server.process.wait(60), 0)


if __name__ == "__main__":
    main()
