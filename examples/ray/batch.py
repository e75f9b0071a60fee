#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Continues the prompts of a JSONL file on the workers of a Ray cluster, as `moe batch` does on one machine.

    pip install "ray[data,serve]" moe-*.whl
    python3 batch.py MODEL IN.jsonl OUT [--workers N] [--threads N] [-n TOKENS]

A line of IN is {"prompt": TEXT}, optionally with an "id". OUT/result.jsonl gets one result per line, in
order, in the format of `moe batch`. Until then OUT holds a file for each batch of lines; after an
interruption the same command computes only the lines that are in none of them. MODEL, IN and OUT are
paths that every node can access.

Each worker maps the model file, so that the workers of a node share the weights in memory. A worker
evaluates several texts together; results have the same bits for every grouping of lines."""

import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import socket
import sys

import moe
import numpy as np
import ray

TOGETHER = 8  # texts that a worker evaluates together
LINES = 32  # lines of a batch, and so of a file


class Text:
    """The text of one line, in progress."""

    def __init__(self, model, session, line, given, max_tokens):
        self.model, self.session, self.line, self.max_tokens = model, session, line, max_tokens
        self.id = {"id": given["id"]} if "id" in given else {}
        self.prompt = model.encode(given["prompt"])
        self.tokens = []
        session.rewind(0)
        session.append(self.prompt)

    def choose(self):
        """Samples the next token. Returns why the text ends, or None."""
        token = self.session.sample().token
        if token in self.model.info.eos_tokens:
            return "eos"
        self.tokens.append(token)
        if len(self.tokens) == self.max_tokens:
            return "length"
        return "context" if self.session.position == self.session.context else None

    def result(self, finish):
        whole = np.concatenate([self.prompt, np.array(self.tokens, np.int32)])
        head, text = (self.model.decode(t, skip_special=True) for t in (self.prompt, whole))
        return {"line": self.line, **self.id, "text": text[len(head):], "finish": finish,
                "n_prompt": len(self.prompt), "n_generated": len(self.tokens)}


def read_line(text):
    given = json.loads(text)
    if not isinstance(given, dict) or not isinstance(given.get("prompt"), str):
        raise ValueError("expected an object with the text 'prompt'")
    if unknown := given.keys() - {"prompt", "id"}:
        raise ValueError(f"expected 'prompt' and 'id' alone, found '{min(unknown)}'")
    return given


class Worker:
    """Created once in each process; Ray calls it with batches of lines."""

    def __init__(self, model, folder, threads, max_tokens):
        self.model = moe.Model(model, moe.Environment(threads=threads), map_weights=True)
        self.idle = [self.model.session() for _ in range(TOGETHER)]
        self.folder, self.max_tokens = pathlib.Path(folder), max_tokens

    def begin(self, line, text):
        """A text, or a result with the error of an invalid line."""
        try:
            begun = Text(self.model, self.idle[-1], line, read_line(text), self.max_tokens)
        except (ValueError, moe.MoeError) as e:
            return {"line": line, "error": str(e)}
        self.idle.pop()
        return begun

    def results(self, lines):
        lines, running = list(lines), []
        while lines or running:
            while lines and self.idle:
                begun = self.begin(*lines.pop(0))
                if isinstance(begun, dict):
                    yield begun
                else:
                    running.append(begun)
            going_on = []
            for text in running:
                finish = text.choose()
                if finish is None:
                    going_on.append(text)
                else:
                    yield text.result(finish)
                    self.idle.append(text.session)
            running = going_on
            running, faults = self.step(running)
            yield from faults

    def step(self, running):
        """Advances the texts by one token. Returns those that continue, and the results of those that failed."""
        if not running:
            return running, []
        try:
            moe.step([t.session for t in running], [t.tokens[-1] for t in running])
            return running, []
        except moe.MoeError as e:  # no session has advanced
            if len(running) == 1:
                self.idle.append(running[0].session)
                return [], [{"line": running[0].line, **running[0].id, "error": str(e)}]
        alone = [self.step([text]) for text in running]
        return [t for going, _ in alone for t in going], [f for _, faults in alone for f in faults]

    def __call__(self, batch):
        lines = [(int(line), text) for line, text in zip(batch["line"], batch["text"])]
        results = list(self.results(lines))
        path = self.folder / f"part-{lines[0][0]:09}.jsonl"
        partial = path.with_suffix(f".{socket.gethostname()}-{os.getpid()}")
        partial.write_text("".join(json.dumps(r) + "\n" for r in results), encoding="utf-8")
        partial.rename(path)  # a part is complete or does not exist
        return {"n_generated": np.array([r.get("n_generated", 0) for r in results])}


def only_user(folder):
    """Locks the folder as long as the returned file is open."""
    file = open(folder / "lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"{folder}: another process is writing these results")
    return file


def check_job(folder, job):
    """Checks that existing results belong to this job."""
    path = folder / "job.json"
    if not path.exists():
        partial = folder / "job.partial"
        partial.write_text(json.dumps(job))
        partial.rename(path)
    found = json.loads(path.read_text())
    for key, value in job.items():
        if found.get(key) != value:
            sys.exit(f"{folder}: holds results of another job: {key}: expected {value}, found {found.get(key)}")


def results_in(folder):
    """{line: result} of all parts. A line that was computed twice has the same result."""
    lines = (json.loads(line) for part in folder.glob("part-*.jsonl") for line in part.open(encoding="utf-8"))
    return {r["line"]: r for r in lines}


def write_result(folder, results):
    partial = folder / "result.partial"
    with partial.open("w", encoding="utf-8") as file:
        for line in sorted(results):
            file.write(json.dumps(results[line], ensure_ascii=False) + "\n")
    partial.rename(folder / "result.jsonl")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def run(lines, arguments):
    """Yields the number of generated tokens of each result, as results arrive."""
    blocks = -(-len(lines) // LINES)
    dataset = ray.data.from_items(lines, override_num_blocks=blocks).map_batches(
        Worker, batch_size=LINES, num_cpus=arguments.threads,
        compute=ray.data.ActorPoolStrategy(size=arguments.workers),
        fn_constructor_args=(arguments.model, str(arguments.out), arguments.threads, arguments.n))
    for row in dataset.iter_rows():
        yield row["n_generated"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=os.path.abspath)
    parser.add_argument("lines", type=pathlib.Path, metavar="IN")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=1, help="total number of processes on all nodes")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("-n", type=int, default=64, help="largest number of tokens generated per text")
    arguments = parser.parse_args()
    arguments.out = arguments.out.absolute()
    arguments.out.mkdir(parents=True, exist_ok=True)
    lock = only_user(arguments.out)
    check_job(arguments.out, {"model": sha256(arguments.model), "lines": sha256(arguments.lines), "n": arguments.n})
    text = arguments.lines.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")
    done = results_in(arguments.out)
    left = [{"line": i, "text": line} for i, line in enumerate(text, 1) if i not in done]
    print(f"{len(done)} of {len(text)} lines were done", flush=True)
    if left:
        ray.init(include_dashboard=False)  # the cluster of RAY_ADDRESS, or this machine
        print(f"{sum(run(left, arguments))} tokens generated")
    write_result(arguments.out, results_in(arguments.out))
    lock.close()


if __name__ == "__main__":
    main()
