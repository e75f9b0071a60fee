# SPDX-License-Identifier: MIT
"""A client of serve.py that retries refused requests and continues answers that broke off.

    python3 client.py URL PROMPT

All replicas give the same tokens for the same request, so after a break the client repeats the request
and skips the pieces that it has."""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request

PAUSE = 0.1  # seconds before another attempt


class Answer:
    """An iterator over the pieces of one request; `n_refused` and `n_broken` count attempts."""

    def __init__(self, url, request, attempts=600):
        self.url, self.body = url, json.dumps(request).encode()
        self.attempts, self.n_refused, self.n_broken = attempts, 0, 0
        self.pid = None  # process id of the replica that answers

    def _lines(self):
        with urllib.request.urlopen(self.url, self.body, timeout=60) as response:
            yield from map(json.loads, response)

    def _attempt(self, have):
        """Yields the pieces from number `have` on; returns at the end of the text, raises if the answer breaks off."""
        seen = 0
        for item in self._lines():
            self.pid = item.get("pid", self.pid)
            if "error" in item:
                raise RuntimeError(item["error"])
            if "finish" in item:
                return
            if "text" in item:
                seen += 1
                if seen > have:
                    yield item
        raise ConnectionError("the answer has no end")

    def _count(self, error):
        """Raises errors that another attempt would not fix."""
        if isinstance(error, urllib.error.HTTPError):
            if error.code < 500:
                raise RuntimeError(error.read().decode(errors="replace")) from error
            self.n_refused += 1
        else:
            self.n_broken += 1
        if self.n_refused + self.n_broken >= self.attempts:
            raise error

    def __iter__(self):
        have = 0
        while True:
            try:
                for piece in self._attempt(have):
                    have += 1
                    yield piece
                return
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as e:
                self._count(e)
                time.sleep(PAUSE)


def main():
    url, prompt = sys.argv[1:]
    for piece in Answer(url, {"prompt": prompt}):
        print(piece["text"], end="", flush=True)
    print()


if __name__ == "__main__":
    main()
