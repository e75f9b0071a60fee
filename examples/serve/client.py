#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A client of several `moe serve` of one model: when a server goes away in the middle of an answer, another one
gives the rest, and the text is the same byte for byte.

    python3 client.py PROMPT http://127.0.0.1:8081 http://127.0.0.1:8082 [--max-tokens N] [--temperature X] [--seed N]

An answer of `moe serve` is a function of its request, if the request has a seed. So the request is sent again as it
was, and the characters that the caller already has are left out. Servers with another model file or other settings
would give another text; their `system_fingerprint` differs, and the client refuses to go on with such a one."""

import argparse
import http.client
import itertools
import json
import random
import sys
import time
import urllib.parse

PAUSE = 0.1  # seconds of rest after every server has failed once more


class Refused(Exception):
    """A request that is at fault itself: another server would refuse it too."""


class Another(Exception):
    """A server that answers as another model would."""


def lines_of(url, path, body, key):
    """The objects of a stream of server-sent events, up to its end. ConnectionError if it breaks off."""
    where = urllib.parse.urlsplit(url)
    secure = where.scheme == "https"
    connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(where.netloc, timeout=60)
    try:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            text = answer.read().decode(errors="replace")
            if answer.status in (400, 401, 404, 413):
                raise Refused(f"{url}: {answer.status}: {text}")
            raise ConnectionError(f"{url}: {answer.status}: {text}")  # full, or ending: another one may take it
        for line in answer:
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                return
            if line.startswith(b"data: "):
                yield json.loads(data)
        raise ConnectionError(f"{url}: the answer has no end")
    finally:
        connection.close()


class Answer:
    """An iterator over the parts of one text. `server` is the one that answers at present, `n_broken` counts the
    attempts that failed."""

    def __init__(self, servers, request, key="", attempts=100):
        self.servers = list(servers)
        self.request = {"seed": random.getrandbits(31), **request, "stream": True}
        self.key, self.attempts = key, attempts
        self.fingerprint, self.server, self.n_broken = None, None, 0

    def _attempt(self, server, have):
        """Yields the text behind its first `have` characters."""
        self.server = server
        for part in lines_of(server, "/v1/completions", self.request, self.key):
            if "error" in part:
                raise ConnectionError(f"{server}: {part['error']['message']}")
            self.fingerprint = self.fingerprint or part["system_fingerprint"]
            if part["system_fingerprint"] != self.fingerprint:
                raise Another(f"{server}: {part['system_fingerprint']}, where the text began by {self.fingerprint}")
            for choice in part["choices"]:
                if choice["index"] > 0:
                    raise Refused("expected a request for one text")
                text = choice["text"]
                if new := text[have:]:
                    yield new
                have = max(0, have - len(text))

    def __iter__(self):
        have = 0
        for server in itertools.cycle(self.servers):
            try:
                for text in self._attempt(server, have):
                    have += len(text)
                    yield text
                return
            except (OSError, http.client.HTTPException, ValueError):  # also JSON that is cut off
                self.n_broken += 1
                if self.n_broken >= self.attempts:
                    raise
                if self.n_broken % len(self.servers) == 0:
                    time.sleep(PAUSE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt")
    parser.add_argument("servers", nargs="+", metavar="URL")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=random.getrandbits(31))
    given = parser.parse_args()
    request = {"prompt": given.prompt, "max_tokens": given.max_tokens, "temperature": given.temperature, "seed": given.seed}
    try:
        for text in Answer(given.servers, request):
            print(text, end="", flush=True)
        print()
    except (Refused, Another, OSError, http.client.HTTPException, ValueError) as e:
        sys.exit(f"client.py: {e}")


if __name__ == "__main__":
    main()
