#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times of grammars with a vocabulary of 130,072 tokens, on the texts of MaskBench, beside llguidance's in the same run.

Usage: grammars.py --match_grammars PROGRAM --suite FOLDER --tekken FILE [--every N]

FOLDER: maskbench/data of guidance-ai/jsonschemabench. FILE: tekken_240911.json of the package mistral-common. Needs tiktoken,
llguidance and numpy. As in the suite, the time of a token is that of its mask and of accepting it, up to the first one that is
refused, in processor time; the other engine's is measured from Python, as the suite does. --every: takes every N-th schema."""

import argparse
import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import llguidance
import llguidance.numpy
import tiktoken

N_TOKENS = 130072
# The suite's table of 10,163 schemas: what came later is left out.
PARTS = ("Github_", "Glaiveai2K", "Handwritten", "JsonSchemaStore", "Kubernetes", "MCPspec", "Snowplow", "Synthesized",
         "WashingtonPost")


class Vocabulary:
    """A tokenizer in the shape that llguidance asks for."""

    def __init__(self, tekken):
        config = json.loads(pathlib.Path(tekken).read_text())
        texts = [base64.b64decode(t["token_bytes"]) for t in config["vocab"][:N_TOKENS]]
        self.encoding = tiktoken.Encoding("tekken", pat_str=config["config"]["pattern"], special_tokens={},
                                          mergeable_ranks={t: i for i, t in enumerate(texts)})
        self.tokens = [*texts, b"</s>"]
        self.eos_token_id = N_TOKENS
        self.bos_token_id = None
        self.special_token_ids = [N_TOKENS]

    def __call__(self, text):
        return self.encoding.encode(text.decode() if isinstance(text, bytes) else text)


def ours(program, vocabulary, cases):
    with tempfile.TemporaryDirectory() as folder:
        names = [pathlib.Path(folder, name) for name in ("cases.jsonl", "vocabulary.json")]
        names[0].write_text("".join(json.dumps(c) + "\n" for c in cases))
        names[1].write_text(json.dumps([t.hex() for t in vocabulary.tokens[:N_TOKENS]]))
        out = subprocess.run([program, *names], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in out.stdout.split("\n") if line]


def theirs(tokenizer, case):
    """The same figures of llguidance."""
    begin = time.thread_time_ns()
    matcher = llguidance.LLMatcher(tokenizer, json.dumps({"grammars": [{"json_schema": json.loads(case["grammar"])}]}), log_level=0)
    if matcher.is_error():
        return {"error": matcher.get_error()}
    compiled = time.thread_time_ns() - begin
    mask = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    first = matcher.deep_copy()
    begin = time.thread_time_ns()
    llguidance.numpy.fill_next_token_bitmask(first, mask, 0)
    found = {"compile_ns": compiled, "first_ns": compiled + time.thread_time_ns() - begin, "mask_ns": []}
    for tokens in case["tokens"]:
        text, times = matcher.deep_copy(), []
        for t in tokens:
            begin = time.thread_time_ns()
            llguidance.numpy.fill_next_token_bitmask(text, mask, 0)
            fits = int(mask[0, t // 32]) >> (t % 32) & 1
            if fits:
                text.consume_token(t)
            times.append(time.thread_time_ns() - begin)
            if not fits:
                break
        found["mask_ns"].append(times)
    return found


def shown(name, values, unit):
    values = sorted(values)
    at = [values[min(len(values) - 1, int(len(values) * p))] / unit for p in (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1)]
    print(f"| {name} | {len(values)} | {sum(values) / len(values) / unit:.1f} | " + " | ".join(f"{v:.1f}" for v in at) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match_grammars", required=True)
    parser.add_argument("--suite", required=True)
    parser.add_argument("--tekken", required=True)
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    vocabulary = Vocabulary(arguments.tekken)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary), n_vocab=N_TOKENS + 1)
    files = [p for p in sorted(pathlib.Path(arguments.suite).glob("*.json")) if p.name.startswith(PARTS)][::arguments.every]
    cases = []
    for path in files:
        suite = json.loads(path.read_text())
        cases.append({"kind": "schema", "grammar": json.dumps(suite["schema"]),
                      "tokens": [vocabulary(json.dumps(t["data"], ensure_ascii=False)) for t in suite["tests"]]})
    results = {"moe": ours(arguments.match_grammars, vocabulary, cases)}
    results["llguidance"] = []
    for i, case in enumerate(cases):
        if i % 500 == 0:
            print(i, len(cases), file=sys.stderr)
        results["llguidance"].append(theirs(tokenizer, case))
    both = [i for i in range(len(cases)) if all("compile_ns" in r[i] for r in results.values())]
    print("| | values | mean | 50 % | 75 % | 90 % | 95 % | 99 % | 99.9 % | most |\n|---|---|---|---|---|---|---|---|---|---|")
    for name, found in results.items():
        for which, some in (("", range(len(cases))), (", schemas that both compile", both)):
            done = [found[i] for i in some if "compile_ns" in found[i]]
            shown(f"{name}: µs per token{which}", [t for r in done for text in r.get("mask_ns", ()) for t in text], 1000)
            shown(f"{name}: µs to compile{which}", [r["compile_ns"] for r in done], 1000)
            shown(f"{name}: µs to the first mask{which}", [r["first_ns"] for r in done], 1000)
    done = [(r, p.name) for r, p in zip(results["moe"], files, strict=True) if "compile_ns" in r]
    shown("moe: kB of a compiled schema", [r["bytes"] for r, _ in done], 1000)
    shown("moe: kB of a text's states", [r["state_bytes"] for r, _ in done], 1000)
    slow = sorted(((max(max(text, default=0) for text in r.get("mask_ns") or [[0]]), name) for r, name in done), reverse=True)
    print("slowest masks, µs:", [(n // 1000, name) for n, name in slow[:8]])
    slow = sorted(((r["first_ns"], name) for r, name in done), reverse=True)
    print("slowest first masks, µs:", [(n // 1000, name) for n, name in slow[:8]])
    slow = sorted(((r["bytes"], name) for r, name in done), reverse=True)
    print("largest, kB:", [(n // 1000, name) for n, name in slow[:8]])


if __name__ == "__main__":
    main()
