#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures moe serve beside llama.cpp's server, which computes the same weights, and beside moe bench.

    python3 tests/bench/peers/write_gguf.py olmoe-1b-7b Q4_0 FOLDER/m.gguf --tokenizer
    build/release/bin/moe convert FOLDER/m.gguf FOLDER/m.moe --set "*=auto"
    python3 tests/bench/serve_race.py FOLDER/m.moe --gguf FOLDER/m.gguf --llama LLAMA_SERVER --keep FOLDER/race.json

A round starts each server in turn, the next round in the opposite order, and asks each

- from --clients clients at once for --tokens tokens after a prompt of --prompt tokens, all as streams: tokens per
  second of the whole, and while every text was being generated, which is what moe bench --sessions measures;
- for the first token after a prompt of --short tokens that comes two seconds after one of --long tokens, and for moe
  how many passes of the model that took;
- for nothing: the CPU time of 10 seconds.

Prompts are random token ids, others in each round. --keep FILE keeps the rounds for the next call, whose medians are
those of all, so that a machine need be quiet for one round at a time, and --what for a part of it. --start measures
instead how long the server takes to listen, beside moe generate -n 1. Run it on an idle machine, with Linux.
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
import socket
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
IDLE_SECONDS = 10
LONG_AHEAD = 2  # seconds from the long prompt to the short one


class Server:
    """A server on a port of its own; `command` is its name and its options."""

    name, extra = "", {}

    def __init__(self, o):
        self.o = o
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        begin = time.monotonic()
        self.log = open(f"{o.log}.{self.name}", "w", encoding="utf-8")
        self.process = subprocess.Popen(self.command(), stdout=self.log, stderr=self.log)
        while not self.is_up():
            if self.process.poll() is not None:
                sys.exit(f"{self.name} does not start, see {self.log.name}")
            time.sleep(0.001)
        self.start_seconds = time.monotonic() - begin

    def command(self):
        raise NotImplementedError

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def get(self, path):
        connection = self.connect()
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def is_up(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def passes(self):
        """Passes of the model so far, and their seconds; None if the server does not say."""
        return None

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()


class Moe(Server):
    name = "moe"

    def command(self):
        memory = ["--memory", self.o.memory] if self.o.memory else []
        return [self.o.moe, "serve", self.o.model, "--port", str(self.port), "--slots", str(self.o.clients),
                "--threads", str(self.o.threads), "--context", str(self.o.context), *memory]

    def passes(self):
        found = dict(re.findall(r"^(moe_step\w+) ([\d.e+-]+)$", self.get("/metrics")[1], re.MULTILINE))
        return float(found["moe_steps_total"]), float(found["moe_step_seconds_total"])


class Llama(Server):
    name = "llama.cpp"
    extra = {"cache_prompt": False}

    def command(self):
        return [self.o.llama, "-m", self.o.gguf, "--port", str(self.port), "-np", str(self.o.clients),
                "-t", str(self.o.threads), "-c", str(self.o.clients * self.o.context), *self.o.llama_options.split()]


def prompt(rng, n):
    return [rng.randrange(300, 50000) for _ in range(n)]


def events(server, ids, n, sampling):
    """The times of the tokens of a streamed text, and their number as the server counts them."""
    body = {"prompt": ids, "max_tokens": n, "stream": True, "stream_options": {"include_usage": True},
            "ignore_eos": True, **sampling, **server.extra}
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"{server.name}: {response.status}: {response.read().decode()[:300]}")
    times, count = [], None
    while line := response.readline():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("usage"):
            count = event["usage"]["completion_tokens"]
        elif event["choices"] and event["choices"][0].get("text"):
            times.append(time.monotonic())
    connection.close()
    return times, count


def together(server, o, rng, sampling, tokens):
    """Tokens per second of all clients: from the first request on, and while every text was being generated."""
    prompts = [prompt(rng, o.prompt) for _ in range(o.clients)]
    barrier = threading.Barrier(o.clients + 1)

    def ask(ids):
        barrier.wait()
        return events(server, ids, tokens, sampling)

    with concurrent.futures.ThreadPoolExecutor(o.clients) as pool:
        texts = [pool.submit(ask, ids) for ids in prompts]
        barrier.wait()
        begin = time.monotonic()
        texts = [text.result() for text in texts]
    for _, count in texts:
        if count != tokens:
            sys.exit(f"{server.name}: {count} tokens, expected {tokens}")
    first, last = max(times[0] for times, _ in texts), min(times[-1] for times, _ in texts)
    # An event may hold the text of two tokens, where one alone is no whole character.
    between = sum(sum(first < t <= last for t in times) * count / len(times) for times, count in texts)
    end = max(times[-1] for times, _ in texts)
    return {"whole": o.clients * tokens / (end - begin), "decode": between / (last - first),
            "first_token": statistics.median(times[0] - begin for times, _ in texts)}


def short_behind_long(server, o, rng, sampling):
    long, short = prompt(rng, o.long), prompt(rng, o.short)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(events, server, long, 1, sampling)
        time.sleep(LONG_AHEAD)
        if other.done():
            sys.exit(f"{server.name} has read the long prompt before the short one came: give a longer one")
        before, begin = server.passes(), time.monotonic()
        first = events(server, short, 1, sampling)[0][0] - begin
        after = server.passes()
        overtakes = not other.done()
        other.result()
    found = {"short_seconds": first, "long_seconds": time.monotonic() - begin + LONG_AHEAD, "overtakes": overtakes}
    if before:
        found |= {"short_passes": after[0] - before[0], "pass_seconds": (after[1] - before[1]) / (after[0] - before[0])}
    return found


def idle(server):
    connection = server.connect()  # a client that keeps its connection
    connection.request("GET", "/health")
    connection.getresponse().read()
    before = server.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    used = server.cpu_seconds() - before
    connection.close()
    return used


def race(kind, o, number):
    rng = random.Random(number)
    sampling = {"temperature": o.temperature, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 1}
    server = kind(o)
    try:
        together(server, o, rng, sampling, 8)  # weights are read, and memory is taken, when they are first used
        found = {}
        if "together" in o.what:
            found |= together(server, o, rng, sampling, o.tokens)
        if "behind" in o.what:
            found |= short_behind_long(server, o, rng, sampling)
        if "idle" in o.what:
            found["idle_cpu_seconds"] = idle(server)
        found["peak_bytes"] = server.peak_bytes()
        if isinstance(server, Moe):
            memory = dict(re.findall(r"^moe_memory_(\w+)_bytes ([\d.e+-]+)$", server.get("/metrics")[1], re.MULTILINE))
            found |= {"account_bytes": float(memory["peak"])} if o.memory else {}
        return found
    finally:
        server.end()


def bench(o):
    """moe bench of the same file, with as many sessions and as long texts."""
    out = subprocess.run([o.moe, "bench", o.model, "-p", "0", "-n", str(o.tokens), "-d", str(o.prompt), "-r", "1",
                          "--json", "--sessions", str(o.clients), "--threads", str(o.threads)],
                         capture_output=True, text=True, check=True).stdout
    return {"decode": json.loads(out)["decode_tokens_per_s"]}


def measure_starts(o):
    """Each round: the server with its sessions until it listens, and the command until it has made its token."""
    found = {"serve": [], "generate": []}
    for _ in range(o.rounds):
        server = Moe(o)
        found["serve"].append(server.start_seconds)
        server.end()
        begin = time.monotonic()
        subprocess.run([o.moe, "generate", o.model, "--tokens", "300", "-n", "1", "--context", str(o.context),
                        "--threads", str(o.threads)], capture_output=True, check=True)
        found["generate"].append(time.monotonic() - begin)
    for name, seconds in found.items():
        ms = [1e3 * f(seconds) for f in (statistics.median, min, max)]
        print(f"{name}: {ms[0]:.1f} ms ({ms[1]:.1f} to {ms[2]:.1f}), {o.rounds} times")


def show(rounds):
    names = list(dict.fromkeys(name for found in rounds for name in found))
    keys = list(dict.fromkeys(key for found in rounds for name in names for key in found.get(name, {})))
    print(f"medians of {len(rounds)} rounds (lowest to highest)\n")
    print("| | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for key in keys:
        row = []
        for name in names:
            values = [found[name][key] for found in rounds if key in found.get(name, {})]
            row.append(f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})" if values else "")
        print(f"| {key} | " + " | ".join(row) + " |")


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="a .moe file")
    p.add_argument("--gguf", help="the same weights for llama.cpp")
    p.add_argument("--llama", metavar="PROGRAM", help="llama.cpp's llama-server; without it moe runs alone")
    p.add_argument("--llama-options", default="", help="more of its options, in one word")
    p.add_argument("--moe", default=str(ROOT / "build/release/bin/moe"))
    p.add_argument("--memory", help="moe's cap")
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--prompt", type=int, default=32, help="tokens of each client's prompt")
    p.add_argument("--tokens", type=int, default=128, help="tokens that each client asks for")
    p.add_argument("--long", type=int, default=4000, help="tokens of the long prompt")
    p.add_argument("--short", type=int, default=16)
    p.add_argument("--context", type=int, default=4096, help="of a slot")
    p.add_argument("--temperature", type=float, default=0.8)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--what", type=lambda text: text.split(","), default=["together", "behind", "idle", "bench"],
                   help="parts of a round: together,behind,idle,bench")
    p.add_argument("--start", action="store_true")
    p.add_argument("--keep", metavar="FILE")
    p.add_argument("--log", default="/tmp/serve_race.log", help="of the servers, with their names added")
    o = p.parse_args()
    if o.llama and not o.gguf:
        p.error("--llama needs --gguf")
    return o


def main():
    o = options()
    if o.start:
        return measure_starts(o)
    rounds = []
    if o.keep and os.path.exists(o.keep):
        with open(o.keep, encoding="utf-8") as f:
            rounds = json.load(f)
    for number in range(len(rounds), len(rounds) + o.rounds):
        runs = {"moe": lambda n=number: race(Moe, o, n)}
        if o.llama:
            runs["llama.cpp"] = lambda n=number: race(Llama, o, n)
        if "bench" in o.what:
            runs["moe bench"] = lambda: bench(o)
        order = list(runs) if number % 2 == 0 else list(reversed(runs))
        found = {name: runs[name]() for name in order}
        rounds.append({name: found[name] for name in runs})
        print(f"round {number + 1}: {json.dumps(rounds[-1])}", file=sys.stderr, flush=True)
        if o.keep:
            with open(o.keep, "w", encoding="utf-8") as f:
                json.dump(rounds, f, indent=1)
    show(rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
