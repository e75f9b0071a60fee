#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times llama.cpp on one GGUF file; compare.py runs it. Prints one JSON object.

Usage: llama_worker.py FILE [-t THREADS] [-p TOKENS,...] [-d DEPTH,...] [-s SESSIONS] [-n TOKENS] [-r REPETITIONS]
                             [--plain-buffers] [--cgroup FOLDER]

Like `moe bench`, it evaluates prompts into an empty context, 512 tokens per call, and then tokens one by one into an
empty context, one with DEPTH tokens, or SESSIONS of them together; each after a warm-up. Token ids are random; only the
last token's logits are computed.
"""

import argparse
import ctypes
import json
import math
import time

import llama_cpp as llama
import measures
from measured import join, peak_bytes, random_tokens, read_bytes

AT_ONCE = 512  # tokens of a prompt that one call evaluates


def keep_log():
    """Collects the lines that llama.cpp logs from now on."""
    lines = [""]

    @llama.llama_log_callback
    def log(_level, text, _user):
        *whole, rest = (lines.pop() + text.decode(errors="replace")).split("\n")
        lines.extend(whole + [rest])

    llama.llama_log_set(log, ctypes.c_void_p(0))
    return lines, log


class Engine:
    def __init__(self, path, plain_buffers):
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = not plain_buffers
        self.model = llama.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))


class Context:
    """Texts of so many sessions, each of at most `tokens` tokens."""

    def __init__(self, engine, threads, tokens, sessions=1):
        params = llama.llama_context_default_params()
        params.n_ctx = tokens * sessions
        params.n_seq_max = sessions
        params.n_batch = params.n_ubatch = AT_ONCE
        params.n_threads = params.n_threads_batch = threads
        self.vocab, self.sessions = engine.vocab, sessions
        self.context = llama.llama_init_from_model(engine.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp cannot make a context of {tokens} tokens for {sessions} sessions")
        self.batch = llama.llama_batch_init(AT_ONCE, 0, 1)
        self.position = 0

    def close(self):
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.context)

    def clear(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), False)
        self.position = 0

    def evaluate(self, tokens):
        """Appends a batch: a token to each session, or all of the tokens to the only one. The last one's logits are computed, or those of each session."""
        batch, several = self.batch, self.sessions > 1
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = self.position + (0 if several else i)
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = i if several else 0
            batch.logits[i] = several or i + 1 == len(tokens)
        self.position += 1 if several else len(tokens)
        status = llama.llama_decode(self.context, batch)
        if status != 0:
            raise SystemExit(f"llama_decode failed with status {status}")

    def seconds(self, pieces):
        """The time to evaluate these batches one after the other."""
        start = time.perf_counter()
        for piece in pieces:
            self.evaluate(piece)
        llama.llama_synchronize(self.context)
        taken = time.perf_counter() - start
        logits = llama.llama_get_logits_ith(self.context, -1)
        if not all(math.isfinite(logits[i]) for i in range(self.vocab)):
            raise SystemExit("llama.cpp computed logits that are not finite")
        return taken


def pieces_of(tokens, size):
    return [tokens[i:i + size] for i in range(0, len(tokens), size)]


def measure(engine, what, o):
    """The rates of each repetition of a measure, after one that does not count, and the bytes that each token read from disk."""
    n = what.prompt or o.generate * what.sessions
    context = Context(engine, o.threads, what.prompt or what.depth + o.generate, what.sessions)
    tokens = random_tokens(n * (o.repetitions + 1), engine.vocab)
    rates, read = [], 0
    for r in range(o.repetitions + 1):
        own = tokens[r * n:(r + 1) * n]
        context.clear()
        if what.depth:
            context.seconds(pieces_of(random_tokens(what.depth, engine.vocab), AT_ONCE))
        before = read_bytes()
        rates.append(n / context.seconds(pieces_of(own, AT_ONCE if what.prompt else what.sessions)))
        read += read_bytes() - before if r > 0 else 0
    context.close()
    return rates[1:], read / (n * o.repetitions)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file")
    measures.add_options(parser, repetitions=1)
    parser.add_argument("--plain-buffers", action="store_true",
                        help="do not repack weights for AMX or other instructions")
    parser.add_argument("--cgroup", help="folder of a memory cgroup to run in")
    o = parser.parse_args()
    wanted = measures.check_options(parser, o)
    if o.cgroup:
        join(o.cgroup)
    lines, callback = keep_log()
    llama.llama_backend_init()
    engine = Engine(o.file, o.plain_buffers)
    found = {what.name: measure(engine, what, o) for what in wanted}
    system = llama.llama_print_system_info().decode()
    version = getattr(llama, "llama_version", lambda: b"unknown")().decode()
    del callback  # llama.cpp calls it until here
    print(json.dumps({
        "version": f"llama.cpp {version} in llama-cpp-python {llama.__version__}",
        "system_info": system,
        "buffers": [" ".join(x.split(":", 1)[-1].split()) for x in lines if "buffer size" in x],
        "flash_attention": any("Flash Attention enabled" in x for x in lines),
        "rates": {name: rates for name, (rates, _) in found.items()},
        "read_bytes_per_token": found["decode"][1],
        "peak_bytes": peak_bytes(o.cgroup) if o.cgroup else 0}))


if __name__ == "__main__":
    main()
