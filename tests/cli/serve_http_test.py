#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moe serve as an HTTP server: heads of requests, connections, limits of the process, its end."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import unittest

from serve_test import ENDLESS, JSON, Server, read_answer, request_text
from support import MODEL, MOE, Cli, main

SHIM = sys.argv[5] if len(sys.argv) > 5 else None
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
# Far more bytes than a socket holds for a client that does not read.
LONG = {"prompt": "Once", "max_tokens": 100, "n": 60, "ignore_eos": True, "stream": True}


def head(*lines, start="POST /v1/completions HTTP/1.1", host="Host: localhost", media="Content-Type: application/json"):
    return "\r\n".join(l for l in (start, host, media, *lines, "", "") if l is not None).encode("latin-1")


def rest_of(s):
    """All that comes until the other side closes the connection."""
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: s.recv(65536), b""))
    return b""


class Http(Cli):
    def error(self, text):
        """The code of a whole answer that is an error in the API's shape, with its status."""
        top, body = text.decode().split("\r\n\r\n", 1)
        self.assertIn("Content-Type: application/json", top)
        self.assertIn(f"Content-Length: {len(body)}", top, text)  # nothing follows
        error = json.loads(body)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        return int(top.split()[1]), error["code"]

    def answer(self, server, data):
        """The next answer's status and body."""
        s = server.connect()
        s.sendall(data)
        return read_answer(s.makefile("rb"))

    def refused(self, server, data):
        """The status and code of an answer after which the connection is closed, as soon as `data` is there."""
        s = server.connect()
        s.sendall(data)
        return self.error(rest_of(s))


class Heads(Http):
    def test_what_two_programs_could_read_differently(self):
        server = Server(self)
        body = b'{"prompt": "a"}'
        n = f"Content-Length: {len(body)}"
        for lines in ((n, n), (n, "Content-Length: 0"), (n, "content-length: 0"), (f"Content-Length : {len(body)}",),
                      (f"Content-Length\t: {len(body)}",), (f" {n}", "Content-Length: 0"), (n, "Transfer-Encoding: chunked"),
                      ("Transfer-Encoding: chunked", n), ("Transfer-Encoding : chunked",), ("Transfer-Encoding: chunked",) * 2,
                      ("Transfer-Encoding: identity",), ("Transfer-Encoding: gzip, chunked",), ("Transfer-Encoding: xchunked",),
                      ("Transfer-Encoding:\r\n chunked",), ("Content-Length: 1\r\n 5",), (n, "X: a\rTransfer-Encoding: chunked"),
                      (n, "Host: localhost"), (n, "Host: evil.example"), (n, "Content-Type: text/plain"),
                      (n, "Authorization: Bearer a", "Authorization: Bearer b"),
                      (n, "X-Api-Key: a", "x-api-key: b"), (n, "a b: c")):
            self.assertEqual(self.refused(server, head(*lines) + body + HEALTH), (400, "malformed_request"), lines)
        self.assertEqual(self.refused(server, head(n, host=None) + body), (400, "malformed_request"))
        self.assertEqual(self.refused(server, head("Transfer-Encoding: chunked", start="POST /v1/completions HTTP/1.0")), (400, "malformed_request"))
        for line in ("Content-Length: 1, 1", "Content-Length: +1", "Content-Length: 0x1", "Content-Length:", "Content-Length: 1e1"):
            s = server.connect()
            s.sendall(head(line) + HEALTH)  # libmicrohttpd refuses these itself
            text = rest_of(s)
            self.assertTrue(text.startswith(b"HTTP/1.1 400 "), text)
            self.assertNotIn(b"200 OK", text)
        self.assertEqual(self.answer(server, head("Transfer-Encoding: CHUNKED") + b"f\r\n" + body + b"\r\n0\r\n\r\n")[0], 200)

    def test_hosts(self):
        server = Server(self)
        for host in ("localhost", "LOCALHOST", "localhost.", "Localhost:80", "localhost.:1", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", ""):
            self.assertEqual(self.answer(server, head(start="GET /health HTTP/1.1", host=f"Host: {host}"))[0], 200, host)
        for host in ("[evil", "[evil]", "[::1", "[::1]evil", "[::1]:a", "[]", "evil", "localhost.evil", "localhost:evil", "evil:80", "127.0.0.1.evil",
                     "localhost@evil", "localhost..", "xlocalhost"):
            status, text = self.answer(server, head(start="GET /health HTTP/1.1", host=f"Host: {host}"))
            self.assertEqual((status, json.loads(text)["error"]["code"]), (403, "host"), host)
        named = Server(self, "--unix", self.path("s"))  # which no web page can reach
        self.assertEqual(self.answer(named, head(start="GET /health HTTP/1.1", host="Host: chat.example"))[0], 200)

    def test_media_types(self):
        server = Server(self)
        for media, status in (("application/json", 200), ("APPLICATION/Json", 200), ("application/json;charset=utf-8", 200),
                              ("application/json ; a=b", 200), ("application/jsonx", 415), ("application/json-patch+json", 415),
                              ("application/json, text/plain", 415), ("text/plain;application/json", 415), ("", 415), (None, 415)):
            text = head("Content-Length: 15", media=media if media is None else f"Content-Type: {media}") + b'{"prompt": "a"}'
            self.assertEqual(self.answer(server, text)[0], status, media)

    def test_paths(self):
        server = Server(self)
        for url in ("/health%00", "/health%00x", "/%00", "/v1/models%00", "/health%20", "/%68ealth", "/health/", "//health", "*", "/health\x01"):
            status, text = self.answer(server, head(start=f"GET {url} HTTP/1.1"))
            self.assertEqual((status, json.loads(text)["error"]["code"]), (404, "unknown_url"), url)

    def test_what_is_refused_before_its_body_comes(self):
        keys = self.path("keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write("key\n")
        os.chmod(keys, 0o600)
        open_to_all = Server(self, "--max-body", "100000")
        with_keys = Server(self, "--api-key-file", keys)
        for server, wanted, values in (
                (open_to_all, (403, "host"), {"host": "Host: evil"}), (open_to_all, (404, "unknown_url"), {"start": "POST /v1/none HTTP/1.1"}),
                (open_to_all, (405, "method_not_allowed"), {"start": "PUT /v1/completions HTTP/1.1"}),
                (open_to_all, (405, "method_not_allowed"), {"start": "POST /health HTTP/1.1"}),
                (open_to_all, (415, "unsupported_media_type"), {"media": "Content-Type: text/plain"}),
                (with_keys, (401, "invalid_api_key"), {})):
            for length in ("Content-Length: 90000", "Transfer-Encoding: chunked", "Content-Length: 90000\r\nExpect: 100-continue"):
                self.assertEqual(self.refused(server, head(length, **values)), wanted, (values, length))
        for length in (100001, 2**40, 2**64 - 1):
            self.assertEqual(self.refused(open_to_all, head(f"Content-Length: {length}")), (413, "body_too_large"))
        # A client that sends it all first gets the answer too.
        for status, url, size in ((413, "/v1/completions", 1500000), (404, "/none", 1500000)):
            self.assertEqual(open_to_all.refuses(status, "x" * size, url=url)[1]["Connection"], "close")
        chunks = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
        s = open_to_all.connect()
        s.sendall(head("Transfer-Encoding: chunked") + chunks * 8 + b"0\r\n\r\n")
        self.assertEqual(read_answer(s.makefile("rb"))[0], 413)


class Connections(Http):
    def test_clients_that_leave_in_the_middle_of_a_request(self):
        for where in ((), ("--unix", self.path("s"))):
            server = Server(self, *where)
            server.wait_for_sockets(1)
            body = request_text({"prompt": "a" * 1000})
            for part in (b"", b"POST", body[:40], body[:-500], head("Transfer-Encoding: chunked") + b"5\r\nab"):
                for leave, at_once in (("close", False), ("close", True), ("half", False), ("half", True)):
                    s = server.connect()
                    s.settimeout(20)  # far less than the limit of a silent client
                    time.sleep(0.02)
                    if at_once:  # the server sees bytes and the end together
                        server.process.send_signal(signal.SIGSTOP)
                    s.sendall(part)
                    if not at_once:
                        time.sleep(0.02)
                    s.shutdown(socket.SHUT_WR)
                    if leave == "close":
                        s.close()
                    server.process.send_signal(signal.SIGCONT)
                    if leave == "half":
                        self.assertNotIn(b" 200 ", rest_of(s))
                        s.close()
            server.wait_for_sockets(1)
            # A whole request is answered.
            s = server.connect()
            s.sendall(HEALTH.replace(b"1.1", b"1.0"))
            s.shutdown(socket.SHUT_WR)
            self.assertIn(b'"ok"', rest_of(s))

    def test_silent_streams_are_kept_alive(self):
        server = Server(self, "--slots", "1", "--max-waiting", "1000")
        for _ in range(10):
            server.connect().sendall(request_text(ENDLESS))
        server.wait_for_metric("moe_requests_total", 10)
        waiting = server.connect()
        waiting.sendall(request_text({"prompt": "Once", "stream": True}))
        silence = time.monotonic()
        text = b""
        while b": ping\n\n" not in text:
            part = waiting.recv(4096)
            self.assertTrue(part, text)
            text += part
        self.assertGreater(time.monotonic() - silence, 14)
        self.assertIn(b"text/event-stream", text)
        self.assertNotIn(b"data:", text)

    def limited(self, soft, hard, *args):
        return Server(self, *args, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))

    def test_the_limit_of_open_files(self):
        server = self.limited(60, 1000, "--max-connections", "300")
        self.assertNotIn("open files", server.text())
        clients = [server.connect() for _ in range(250)]
        for s in clients:
            s.sendall(HEALTH)
        for s in clients:
            self.assertEqual(read_answer(s.makefile("rb"))[0], 200)
        server = self.limited(60, 150, "--max-connections", "300")
        fit = int(server.wait_for_text(r"--max-connections 300: needs \d+ open files, and the limit is 150 .*; at most (\d+) connections")[1])
        self.assertGreater(fit, 20)
        clients = [server.connect() for _ in range(fit + 60)]
        for s in clients:
            s.sendall(HEALTH)
        for s in clients:  # those that are served make room
            self.assertEqual(read_answer(s.makefile("rb"))[0], 200)
            s.close()
        r = subprocess.run(["bash", "-c", 'ulimit -n 50; exec "$@"', "-", MOE, "serve", MODEL, "--port", "0"], capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 1, r.stderr)
        self.assertIn("--max-connections 256: needs", r.stderr)

    @unittest.skipIf(SHIM is None, "a sanitizer has its own malloc")
    def test_answers_for_which_memory_ends(self):
        server = Server(self, "--unix", self.path("s"), before=lambda: os.environ.update(LD_PRELOAD=SHIM, FAILING_MALLOC_SIZE="300000"))
        expected = server.complete("The dog", max_tokens=20)
        s = server.connect()
        s.sendall(request_text({**ENDLESS, "stream": True}, extra="Connection: close\r\n"))
        start = s.recv(1000)
        self.assertIn(b"200 OK", start)
        server.wait_for_metric("moe_requests_cancelled_total", 1)  # it does not read what is sent to it
        server.wait_for_metric("moe_requests_running", 0)
        text = start + rest_of(s)
        events = b"".join(chunk.split(b"\r\n", 1)[1] for chunk in self.chunks(text)).decode()
        self.assertNotIn("[DONE]", events[-1000:])
        events = events.split("\n\n")
        self.assertEqual(events[-1], "")
        for event in events[:-2]:
            self.assertEqual(json.loads(event.removeprefix("data: "))["object"], "text_completion")
        self.assertIn("memory", json.loads(events[-2].removeprefix("data: "))["error"]["message"])
        whole = {"prompt": "The dog", "max_tokens": 100, "n": 60, "ignore_eos": True, "logprobs": 20}
        self.assertEqual(server.refuses(503, whole)[0]["type"], "overloaded_error")
        self.assertEqual(server.complete("The dog", max_tokens=20), expected)

    @staticmethod
    def chunks(text):
        """Those of an answer, with their sizes."""
        text = text.split(b"\r\n\r\n", 1)[1]
        while text:
            size, _, rest = text.partition(b"\r\n")
            n = int(size, 16)
            yield size + b"\r\n" + rest[:n]
            text = rest[n + 2:]


class End(Http):
    def test_answers_are_sent_to_the_end(self):
        server = Server(self, "--unix", self.path("s"))
        s = server.connect()
        s.sendall(request_text(LONG))
        waiting = server.connect()
        waiting.sendall(HEALTH)
        self.assertEqual(read_answer(waiting.makefile("rb"))[0], 200)
        server.wait_for_metric("moe_requests_running", 8)
        server.process.terminate()
        server.wait_for_text("finishing")
        waiting.sendall(HEALTH)
        self.assertRegex(rest_of(waiting), rb"(?s)^HTTP/1.1 503 .*\r\nConnection: close\r\n")
        time.sleep(4)  # by then the texts are complete, but not sent
        self.assertIsNone(server.process.poll())
        file = s.makefile("rb")
        self.assertIn(b"data: [DONE]", file.read())
        self.assertEqual(server.process.wait(60), 0)

    def test_a_second_signal_does_not_wait_for_them(self):
        server = Server(self, "--unix", self.path("s"))
        s = server.connect()
        s.sendall(request_text(LONG))
        server.wait_for_metric("moe_requests_running", 8)
        server.process.terminate()
        time.sleep(4)
        self.assertIsNone(server.process.poll())
        server.process.terminate()
        self.assertEqual(server.process.wait(60), 0)

    def test_the_next_server_takes_the_address(self):
        path = self.path("s")
        first = Server(self)
        for old, where in ((first, ("--port", str(first.port))), (Server(self, "--unix", path), ("--unix", path))):
            s = old.connect()
            s.sendall(request_text(ENDLESS))
            old.wait_for_metric("moe_requests_running", 8)
            old.process.send_signal(signal.SIGTERM)
            old.wait_for_text("finishing")
            new = Server(self, *where)
            s.close()
            self.assertEqual(old.process.wait(60), 0)
            self.assertEqual(new.ask("GET", "/health")[0], 200)
        os.unlink(path)  # by hand, so that two servers are there at the same time
        third = Server(self, "--unix", path)
        new.process.terminate()
        self.assertEqual(new.process.wait(60), 0)
        self.assertEqual(third.ask("GET", "/health")[0], 200)


if __name__ == "__main__":
    main()
