#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two servers of one model, of which one is killed in the middle of an answer, again and again: every text must be
the one that `moe serve` gives undisturbed. Usage: test.py MOE MODEL [TEXTS]"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from client import Another, Answer, Refused

MOE, MODEL = sys.argv[1:3]
TEXTS = int(sys.argv[3]) if len(sys.argv) > 3 else 12
TOKENS = 300


class Server:
    def __init__(self, folder, *options):
        with socket.socket() as free:  # a restart shall have the same address
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.options, self.log = options, open(os.path.join(folder, f"{self.port}.log"), "wb")
        self.start()

    def start(self):
        self.process = subprocess.Popen([MOE, "serve", MODEL, "--port", str(self.port), "--threads", "1", *self.options],
                                        stdout=subprocess.DEVNULL, stderr=self.log)
        end = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=10).close()
                return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end, f"no server at {self.url}"
                time.sleep(0.02)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.kill()
        self.log.close()


def request(i):
    return {"prompt": "Once upon a time", "max_tokens": TOKENS, "temperature": 1, "seed": i, "ignore_eos": True}


def ask(i, servers, kills=None):
    """The text, and how many attempts broke off. kills: the server that is killed behind the first part."""
    answer, text = Answer([s.url for s in servers], request(i)), ""
    for part in answer:
        text += part
        if kills:
            kills.kill()
            kills = None
    return text, answer.n_broken


def main():
    with tempfile.TemporaryDirectory() as folder:
        servers = [Server(folder), Server(folder), Server(folder, "--kv", "f32")]
        try:
            first, second, other = servers
            n_broken = 0
            for i in range(TEXTS):
                expected, _ = ask(i, [second])
                found, broken = ask(i, [first, second], kills=first)
                assert found == expected, f"seed {i}: {found!r} is not {expected!r}"
                n_broken += broken
                first.start()
            assert n_broken > 0, "no answer was broken off: nothing was tested"
            print(f"{TEXTS} texts, 0 differ; {n_broken} answers broke off and were completed by the other server")
            try:
                ask(0, [first, other], kills=first)
                raise AssertionError("a server with other settings completed a text")
            except Another as e:
                print(f"refused: other settings ({str(e).split(': ')[0] == other.url})")
            try:
                list(Answer([second.url], {"prompt": 5}))
                raise AssertionError("a wrong request was answered")
            except Refused as e:
                print(f"refused: {'prompt' in str(e)}")
        finally:
            for server in servers:
                server.end()


if __name__ == "__main__":
    main()
