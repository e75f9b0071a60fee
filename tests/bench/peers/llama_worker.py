#!/usr/bin/env python3
"""Times llama.cpp on one GGUF file; compare.py runs it. Prints one JSON object.

Usage: llama_worker.py FILE [-t THREADS] [-p TOKENS,...] [-n TOKENS] [-r REPETITIONS]
                             [--plain-buffers]

Like `moe bench`: a prompt into an empty context in one call, then tokens one by one into an empty
context, after a few tokens that touch everything once; random token ids; logits of the last token.
"""

import argparse
import ctypes
import json
import math
import time

import llama_cpp as llama


def keep_log():
    """The lines that llama.cpp logs from here on."""
    lines = [""]

    @llama.llama_log_callback
    def log(_level, text, _user):
        *whole, rest = (lines.pop() + text.decode(errors="replace")).split("\n")
        lines.extend(whole + [rest])

    llama.llama_log_set(log, ctypes.c_void_p(0))
    return lines, log


def random_tokens(n, vocab):
    tokens, state = [], 1
    for _ in range(n):
        state = (state * 1664525 + 1013904223) % 2**32
        tokens.append((state >> 8) % vocab)
    return tokens


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
        """For all tokens, in calls of at_once."""
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
    tokens = random_tokens(max(prompts + [generate, 8]), engine.vocab)
    engine.seconds(tokens[:8], 1)
    rates = {f"prefill {p}": [] for p in prompts} | {"decode": []}
    for _ in range(repetitions):
        for p in prompts:
            rates[f"prefill {p}"].append(p / engine.seconds(tokens[:p], p))
        rates["decode"].append(generate / engine.seconds(tokens[:generate], 1))
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prompts", type=lambda s: [int(p) for p in s.split(",")],
                        default=[32, 512])
    parser.add_argument("-n", "--generate", type=int, default=32)
    parser.add_argument("-r", "--repetitions", type=int, default=1)
    parser.add_argument("--plain-buffers", action="store_true",
                        help="no weights rearranged for AMX or other instructions")
    o = parser.parse_args()
    if max(o.prompts) > 512:
        parser.error("a prompt is one batch of at most 512 tokens")
    lines, callback = keep_log()
    llama.llama_backend_init()
    engine = Engine(o.file, o.threads, max(o.prompts + [o.generate]), o.plain_buffers)
    rates = measure(engine, o.prompts, o.generate, o.repetitions)
    system = llama.llama_print_system_info().decode()
    version = getattr(llama, "llama_version", lambda: b"unknown")().decode()
    del callback  # kept alive until here
    print(json.dumps({
        "version": f"llama.cpp {version} in llama-cpp-python {llama.__version__}",
        "system_info": system,
        "buffers": [" ".join(x.split(":", 1)[-1].split()) for x in lines if "buffer size" in x],
        "flash_attention": any("Flash Attention enabled" in x for x in lines),
        "rates": rates}))


if __name__ == "__main__":
    main()
