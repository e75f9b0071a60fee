#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what matters to a server: the cost of scoring a prompt, and of a prompt evaluated in slices beside others.

    export PYTHONPATH=bindings/python/src MOE_LIBRARY=build/release/lib/libmoe.so
    python3 tests/bench/server.py score MODEL --tokens 512    # a prompt's time with moe_session_score, and without
    python3 tests/bench/server.py slices MODEL                # eight sessions decode while a ninth reads its prompt

Run it on an idle machine. Tokens are random.
"""

import argparse
import random
import statistics
import time

import moe

SESSIONS, DEPTH = 8, 32  # sessions that decode, and the length of their texts before that
SLICES = (2, 4, 8, 16, 64, 248)


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def score(model, o):
    tokens = random.choices(range(model.info.vocab_size), k=o.tokens)
    session = model.session(context=o.tokens)

    def timed(call):
        session.rewind(0)
        return seconds(lambda: call(tokens))

    rounds = [(timed(session.append), timed(session.score)) for _ in range(o.rounds + 1)][1:]
    append, scored = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"{o.tokens} tokens: {o.tokens / append:.0f} tokens/s, scored {o.tokens / scored:.0f}: {100 * (scored / append - 1):.0f} % longer")


def slices(model, o):
    token = lambda: random.randrange(model.info.vocab_size)
    sessions = [model.session(context=o.tokens + DEPTH) for _ in range(SESSIONS + 1)]
    prompt, others = sessions[0], sessions[1:]
    for size in (0, *SLICES):
        prompt.rewind(0)
        for session in others:
            session.rewind(0)
            session.append([token() for _ in range(DEPTH)])
        steps = min(o.steps, o.tokens // max(size, 1))
        taken = sessions if size else others
        pieces = [[[token() for _ in range(size)]] * (size > 0) + [[token()] for _ in others] for _ in range(steps)]
        each = statistics.median(seconds(lambda p=p: moe.eval_each(taken, p)) for p in pieces)
        print(f"slices of {size:3}: decode {SESSIONS / each:6.0f} tokens/s, prompt {size / each:6.0f}; {steps} passes")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("score", "slices"))
    p.add_argument("model")
    p.add_argument("--tokens", type=int, default=512, help="of the prompt (default 512)")
    p.add_argument("--rounds", type=int, default=5, help="of score (default 5)")
    p.add_argument("--steps", type=int, default=16, help="passes of each slice, at most (default 16)")
    o = p.parse_args()
    random.seed(1)
    with moe.Model(o.model) as model:
        {"score": score, "slices": slices}[o.what](model, o)


if __name__ == "__main__":
    main()
