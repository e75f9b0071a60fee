#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times llama.cpp on one GGUF file; compare.py runs it. Prints one JSON object.

Usage: llama_worker.py FILE [-t THREADS] [-p TOKENS,...] [-n TOKENS] [-r REPETITIONS]
                             [--plain-buffers] [--cgroup FOLDER]

Like `moe bench`, it evaluates a prompt into an empty context in one call, then tokens one by one into an
empty context, after a few tokens of warm-up. Token ids are random; only the last token's logits are computed.
"""

import argparse
import ctypes
import json
import math
import time

import llama_cpp as llama
from measured import join, peak_bytes, random_tokens, read_bytes


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
    def __init__(self, path, threads, context, plain_buffers):
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = not plain_buffers
        self.model = llama.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        params = llama.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp cannot make a context for {path}")
        self.vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))

    def clear(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), False)

    def seconds(self, tokens, at_once):
        """The time to evaluate all tokens, at_once per call."""
        ids = (llama.llama_token * len(tokens))(*tokens)
        step = ctypes.sizeof(llama.llama_token) * at_once
        first = ctypes.cast(ids, ctypes.c_void_p).value
        pointers = [ctypes.cast(first + i * step, ctypes.POINTER(llama.llama_token))
                    for i in range(len(tokens) // at_once)]
        self.clear()
        start = time.perf_counter()
        for pointer in pointers:
            status = llama.llama_decode(self.context, llama.llama_batch_get_one(pointer, at_once))
            if status != 0:
                raise SystemExit(f"llama_decode failed with status {status}")
        llama.llama_synchronize(self.context)
        taken = time.perf_counter() - start
        logits = llama.llama_get_logits_ith(self.context, -1)
        if not all(math.isfinite(logits[i]) for i in range(self.vocab)):
            raise SystemExit("llama.cpp computed logits that are not finite")
        return taken


def measure(engine, prompts, generate, repetitions):
    """The rates of each repetition, and the bytes that decoding read from disk per token."""
    tokens = random_tokens(max(prompts + [generate * (repetitions + 1)]), engine.vocab)
    engine.seconds(tokens[:generate], 1)
    rates = {f"prefill {p}": [] for p in prompts} | {"decode": []}
    read = 0
    for r in range(1, repetitions + 1):
        for p in prompts:
            rates[f"prefill {p}"].append(p / engine.seconds(tokens[:p], p))
        before = read_bytes()
        rates["decode"].append(generate / engine.seconds(tokens[r * generate:(r + 1) * generate], 1))
        read += read_bytes() - before
    return rates, read / (generate * repetitions)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prompts", type=lambda s: [int(p) for p in s.split(",") if p],
                        default=[32, 512])
    parser.add_argument("-n", "--generate", type=int, default=32)
    parser.add_argument("-r", "--repetitions", type=int, default=1)
    parser.add_argument("--plain-buffers", action="store_true",
                        help="do not repack weights for AMX or other instructions")
    parser.add_argument("--cgroup", help="folder of a memory cgroup to run in")
    o = parser.parse_args()
    if max(o.prompts, default=0) > 512:
        parser.error("a prompt is one batch of at most 512 tokens")
    if o.cgroup:
        join(o.cgroup)
    lines, callback = keep_log()
    llama.llama_backend_init()
    engine = Engine(o.file, o.threads, max(o.prompts + [o.generate]), o.plain_buffers)
    rates, read = measure(engine, o.prompts, o.generate, o.repetitions)
    system = llama.llama_print_system_info().decode()
    version = getattr(llama, "llama_version", lambda: b"unknown")().decode()
    del callback  # llama.cpp calls it until here
    print(json.dumps({
        "version": f"llama.cpp {version} in llama-cpp-python {llama.__version__}",
        "system_info": system,
        "buffers": [" ".join(x.split(":", 1)[-1].split()) for x in lines if "buffer size" in x],
        "flash_attention": any("Flash Attention enabled" in x for x in lines),
        "rates": rates, "read_bytes_per_token": read,
        "peak_bytes": peak_bytes(o.cgroup) if o.cgroup else 0}))


if __name__ == "__main__":
    main()
