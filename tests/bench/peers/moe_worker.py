#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times moe's decode of one model file under a memory cap; memory_limit.py runs it. Prints one JSON object.

Usage: moe_worker.py FILE --memory BYTES --cgroup FOLDER [-t THREADS] [-n TOKENS] [-r REPETITIONS] [--lazy]

It does the same work as llama_worker.py, through the Python package; MOE_LIBRARY and PYTHONPATH say where that is.
"""

import argparse
import json
import time

import moe
from measured import join, peak_bytes, random_tokens, read_bytes


def seconds(session, tokens):
    session.rewind(0)
    start = time.perf_counter()
    for token in tokens:
        session.eval([token])
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file")
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--cgroup", required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-n", "--generate", type=int, default=32)
    parser.add_argument("-r", "--repetitions", type=int, default=1)
    parser.add_argument("--lazy", action="store_true", help="read experts only when they are needed")
    o = parser.parse_args()
    join(o.cgroup)
    with moe.Environment(threads=o.threads) as env, \
         moe.Model(o.file, env, memory_bytes=o.memory, io="direct", lazy_experts=o.lazy,
                   context=o.generate) as model, \
         model.session(context=o.generate) as session:
        tokens = random_tokens(o.generate * (o.repetitions + 1), model.info.vocab_size)
        seconds(session, tokens[:o.generate])
        before, rates = read_bytes(), []
        for r in range(1, o.repetitions + 1):
            rates.append(o.generate / seconds(session, tokens[r * o.generate:(r + 1) * o.generate]))
        read = (read_bytes() - before) / (o.generate * o.repetitions)
        print(json.dumps({"rates": {"decode": rates}, "read_bytes_per_token": read,
                          "peak_bytes": peak_bytes(o.cgroup), "threads": env.info.threads}))


if __name__ == "__main__":
    main()
