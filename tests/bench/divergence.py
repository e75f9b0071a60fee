#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the logits of models on a text. For each model: its perplexity, the mean KL divergence of its
predictions from the first model's in nats, and how often the most likely token is the first model's.

usage: divergence.py [--windows N] [--tokens N] TEXT REFERENCE.moe MODEL...

A model is a .moe file, or a .gguf file, which llama.cpp runs (Python package llama-cpp-python). The text is cut
into windows of --tokens tokens by the first model's tokenizer; each window starts with an empty context.
Needs numpy and moe (MOE_LIBRARY=build/release/lib PYTHONPATH=bindings/python/src).
"""

import argparse

import numpy as np

import moe


def log_probabilities(logits):
    x = np.asarray(logits, dtype=np.float64)
    return x - np.logaddexp.reduce(x, axis=-1, keepdims=True)


class OfMoe:
    def __init__(self, path, n_tokens):
        self.model, self.n_tokens = moe.Model(path), n_tokens

    def logits(self, ids):
        return self.model.session(context=self.n_tokens, kv=moe.KvType.F32).eval_all(ids)


class OfLlama:
    def __init__(self, path, n_tokens):
        import llama_cpp

        f32 = llama_cpp.GGML_TYPE_F32
        self.llama = llama_cpp.Llama(path, n_ctx=n_tokens, n_batch=n_tokens, n_gpu_layers=0, logits_all=True,
                                     type_k=f32, type_v=f32, verbose=False)

    def logits(self, ids):
        self.llama.reset()
        self.llama.eval(ids)
        return self.llama.scores[: len(ids)]


class Sums:
    """Sums of one model over all predictions of a token that the text has."""

    def __init__(self):
        self.n, self.surprise, self.divergence, self.same = 0, 0.0, 0.0, 0

    def add(self, ids, reference, found):
        reference, found = reference[:-1], found[:-1]
        self.n += len(found)
        self.surprise -= found[np.arange(len(found)), ids[1:]].sum()
        self.divergence += (np.exp(reference) * (reference - found)).sum()
        self.same += int((reference.argmax(-1) == found.argmax(-1)).sum())

    def __str__(self):
        return (f"perplexity {np.exp(self.surprise / self.n):8.4f}  KL {self.divergence / self.n:.5f}  "
                f"same best token {100 * self.same / self.n:5.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("text")
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    with open(args.text, encoding="utf-8") as file:
        ids = moe.Model(args.models[0]).encode(file.read())[: args.windows * args.tokens]
    if args.tokens < 2 or len(ids) < args.windows * args.tokens:
        parser.error(f"{args.text}: {len(ids)} tokens, {args.windows} windows of {args.tokens} expected")
    models = [(OfLlama if path.endswith(".gguf") else OfMoe)(path, args.tokens) for path in args.models]
    sums = [Sums() for _ in models]
    for start in range(0, len(ids), args.tokens):
        window = ids[start : start + args.tokens]
        reference = log_probabilities(models[0].logits(window))
        for model, total in zip(models, sums):
            found = reference if model is models[0] else log_probabilities(model.logits(window))
            total.add(window, reference, found)
    for path, total in zip(args.models, sums):
        print(f"{total}  {path}")


main()
