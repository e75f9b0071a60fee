#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `moe batch` with `moe bench --sessions`, which computes as much without sampling, text, JSON and files.

    python3 tests/bench/batch.py build/release/bin/moe              # the commands of several builds take turns

Every line has a prompt of --prompt tokens and gets --generate more. The time of `moe bench` for such a batch is the prefill
of each prompt in turn plus the decode steps of all sessions, which start at the depth of the prompt. The time of `moe batch`
is that of the whole command. Run it on an idle machine.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

STORIES = pathlib.Path(__file__).resolve().parents[2] / "examples/models/stories.moe"
WORDS = ("the a old quiet fox girl miller stone house under mountain river walked found said her his little "
         "garden one day and then but Clara autumn morning dog very lantern bridge slowly").split()

ROUNDS_OF_SEARCH = 200  # each tries as many texts as there are lines


def output(*command):
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def batch(moe, o, lines, folder, *options):
    """Runs `moe batch` on these lines; returns the results and the seconds it took."""
    (folder / "in.jsonl").write_text("".join(json.dumps({"prompt": line}) + "\n" for line in lines))
    results = folder / "out.jsonl"
    results.unlink(missing_ok=True)
    begin = time.perf_counter()
    output(moe, "batch", o.model, folder / "in.jsonl", results, "--sessions", o.sessions, *o.options.split(), *options)
    seconds = time.perf_counter() - begin
    return [json.loads(line) for line in results.read_text().splitlines()], seconds


def prompts(moe, o, folder):
    """Texts of --prompt tokens each, BOS included."""
    random.seed(1)
    texts = []
    for _ in range(ROUNDS_OF_SEARCH):
        if len(texts) >= o.lines:
            break
        tried = [" ".join(random.choices(WORDS, k=random.randint(o.prompt // 2, o.prompt))) for _ in range(o.lines)]
        found, _ = batch(moe, o, tried, folder, "-n", 1)
        texts += [text for text, result in zip(tried, found, strict=True) if result.get("n_prompt") == o.prompt]
    if len(texts) < o.lines:
        raise SystemExit(f"--prompt: {len(texts)} of {o.lines} texts with {o.prompt} tokens found in {ROUNDS_OF_SEARCH} rounds")
    return texts[:o.lines]


def bench_seconds(moe, o):
    j = json.loads(output(moe, "bench", o.model, "-p", o.prompt, "-d", o.prompt, "-n", o.generate, "--sessions", o.sessions,
                          "-r", 20, "--json", *o.options.split()))
    return o.lines * (o.prompt / j["prefill_tokens_per_s"] + o.generate / j["decode_tokens_per_s"])


def batch_seconds(moe, o, lines, folder):
    found, seconds = batch(moe, o, lines, folder, "-n", o.generate, "--ignore-eos")
    assert all((r["n_prompt"], r["n_generated"]) == (o.prompt, o.generate) for r in found) and len(found) == o.lines
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("moe", nargs="+", help="the command")
    parser.add_argument("--model", default=STORIES)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16, help="tokens of each prompt")
    parser.add_argument("--generate", type=int, default=64, help="tokens that follow")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--options", default="--device cpu", help="options of both commands")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = prompts(o.moe[0], o, folder)
        rates = {moe: ([], []) for moe in o.moe}
        for turn in range(o.rounds):
            # The order alternates, so that no command is always measured on the warmer machine.
            for moe, (benches, batches) in list(rates.items())[::-1 if turn % 2 else 1]:
                benches.append(o.lines * o.generate / bench_seconds(moe, o))
                batches.append(o.lines * o.generate / batch_seconds(moe, o, lines, folder))
    for moe, (benches, batches) in rates.items():
        share = statistics.median(batch / bench for bench, batch in zip(benches, batches, strict=True))
        spread = ", ".join(f"{batch:.0f} of {bench:.0f}" for bench, batch in zip(benches, batches, strict=True))
        print(f"{moe}: {statistics.median(batches):.0f} tokens/s, bench {statistics.median(benches):.0f}: {100 * share:.0f} % ({spread})")


if __name__ == "__main__":
    main()
