#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests batch.py and serve.py on this machine: every result must have the text that one process
generates, with one worker and with two, after an interruption, and when a replica is killed.

Usage: test.py MODEL [TEXTS]     (pip install "ray[data,serve]" and the wheel of moe)"""

import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import moe

HERE = pathlib.Path(__file__).resolve().parent
MODEL = os.path.abspath(sys.argv[1])
TEXTS = int(sys.argv[2]) if len(sys.argv) > 2 else 512
TOKENS = 64
AT_ONCE, WAITING, REPLICAS, CLIENTS = 4, 4, 2, 24


def prompts():
    """Different prompts of words that occur in the model's training text."""
    words = [("The", "A", "One"), ("old", "quiet", "little", "brave"), ("fox", "miller", "girl", "bear", "weaver"),
             ("was", "had", "lived", "went", "said"), ("very", "in", "with", "to"), ("the", "a")]
    return [" ".join(p) for p in itertools.islice(itertools.product(*words), TEXTS)]


def expected():
    model = moe.Model(MODEL)
    return [model.session().generate(p, max_tokens=TOKENS).text() for p in prompts()]


def check(what, found, texts):
    wrong = sum(a != b for a, b in zip(found, texts, strict=True))
    print(f"{what}: {len(texts)} texts, {wrong} differ", flush=True)
    if wrong:
        sys.exit(1)


# ---- batch.py

def batch(folder, out, workers):
    return subprocess.Popen([sys.executable, HERE / "batch.py", MODEL, folder / "in.jsonl", folder / out,
                             "--workers", str(workers), "-n", str(TOKENS)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def finish(process):
    output, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(errors)
    return output


def parts(folder, out):
    return sorted((folder / out).glob("part-*.jsonl"))


def result(folder, out):
    return [json.loads(line)["text"] for line in (folder / out / "result.jsonl").open(encoding="utf-8")]


def seconds(folder, out):
    """The time from the first part written to the last, and the number of lines of all parts but the first."""
    files = sorted(parts(folder, out), key=lambda p: p.stat().st_mtime)
    lines = sum(len(p.read_text().splitlines()) for p in files[1:])
    return files[-1].stat().st_mtime - files[0].stat().st_mtime, lines


def try_workers(folder, texts):
    for workers in (1, 2):
        out = f"{workers}"
        finish(batch(folder, out, workers))
        check(f"batch.py, {workers} workers", result(folder, out), texts)
        time_taken, lines = seconds(folder, out)
        print(f"  {lines / time_taken:.1f} texts/s between its first file and its last", flush=True)


def wait_for(process, happened):
    while not happened():
        if process.poll() is not None:
            sys.exit(f"batch.py ended too early: {process.stderr.read()}")
        time.sleep(0.02)


def try_interruption(folder, texts):
    process = batch(folder, "cut", 2)
    wait_for(process, lambda: (folder / "cut" / "job.json").exists())
    refused = batch(folder, "cut", 1)  # refused before the first has started Ray and written much
    message = refused.communicate()[1].strip()
    if refused.returncode == 0 or "another process" not in message:
        sys.exit(f"two processes wrote one result: {message}")
    wait_for(process, lambda: len(parts(folder, "cut")) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = finish(batch(folder, "cut", 2)).splitlines()[0]
    if done.startswith(f"{TEXTS} of"):
        sys.exit("the batch was complete before it was killed: nothing was tested")
    print(f"batch.py, killed; {done}")
    check("batch.py, gone on", result(folder, "cut"), texts)


# ---- serve.py

def start_serve():
    os.environ.update(MODEL=MODEL, AT_ONCE=str(AT_ONCE), WAITING=str(WAITING), REPLICAS=str(REPLICAS))
    sys.path.insert(0, str(HERE))
    import ray
    from ray import serve
    import serve as deployment
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.run(deployment.app)
    return ray


class Load:
    """CLIENTS clients at a time. After a third of the texts, kills the replica that answers."""

    def __init__(self):
        self.lock, self.n_done, self.killed = threading.Lock(), 0, None
        self.counts = collections.Counter()

    def ask(self, prompt):
        from client import Answer
        answer = Answer("http://127.0.0.1:8000/", {"prompt": prompt, "max_tokens": TOKENS})
        text = ""
        for piece in answer:
            text += piece["text"]
            self.perhaps_kill(answer.pid)
        with self.lock:
            self.n_done += 1
            self.counts.update(refused=answer.n_refused, broken=answer.n_broken)
        return text

    def perhaps_kill(self, pid):
        with self.lock:
            if self.killed is None and self.n_done * 3 > TEXTS:
                self.killed = pid
                os.kill(pid, signal.SIGKILL)


def try_serve(texts):
    ray = start_serve()
    load, begin = Load(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        found = list(clients.map(load.ask, prompts()))
    rate = len(texts) / (time.monotonic() - begin)
    check("serve.py, one of two replicas killed", found, texts)
    print(f"  {rate:.1f} texts/s with {CLIENTS} clients; {load.counts['refused']} attempts were refused, "
          f"{load.counts['broken']} broke off", flush=True)
    ray.shutdown()
    if load.killed is None or not load.counts["broken"] or not load.counts["refused"]:
        sys.exit("no replica was killed, or no request refused: nothing was tested")


def main():
    texts = expected()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "in.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts()))
        try_workers(folder, texts)
        try_interruption(folder, texts)
    try_serve(texts)


if __name__ == "__main__":
    main()
