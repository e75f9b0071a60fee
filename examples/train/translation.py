# SPDX-License-Identifier: MIT
"""Rows that translate: encoder-decoders, trained on the pairs of texts/translation.py.

Held-out sentences are translated by `moe translate` with a beam of 5. The runtime's logits for the true
translations must agree with PyTorch's, and every token of a greedy translation must also be the best one
in PyTorch. Rows with a capacity are not checked.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import export
import rows
import runtime
from data import BOS, EOS, MASK, PAD, load_tokenizer, train_tokenizer
from model import Model
from plan import PAIRS, Disagreement, Plan, output_difference, perplexity_difference
from steps import Curve, fit
from stories.engine import Rng
from texts.translation import HELD_OUT_SEED, TRAIN_SEED, pair

BASE = "translate-dense"  # all translation rows have its vocabulary and lengths
CHARACTERS, HELD_OUT_CHARACTERS = 50, 400  # characters of a plan's text per pair, to learn and held out
GREEDY = 20  # held-out sources whose greedy translation is compared token by token
Pair = tuple[list[int], list[int]]


def prepare(folder: Path, plan: Plan) -> None:
    """Writes the tokenizer, the training pairs and the held-out pairs."""
    pairs = [pair(TRAIN_SEED, i) for i in range(plan.text // CHARACTERS)]
    held_out = [pair(HELD_OUT_SEED, i) for i in range(max(8, plan.held_out // HELD_OUT_CHARACTERS))]
    config = rows.read(BASE).config
    learnt = [" ".join(p) for p in pairs[:8000]]
    tokenizer = train_tokenizer(learnt, config["vocab_size"], (BOS, EOS, PAD, MASK), f"$A {EOS}")
    tokenizer.save(str(folder / "tokenizer.json"))
    for i, name in enumerate(("source", "target")):
        lines = "".join(p[i] + "\n" for p in held_out)
        (folder / f"heldout.{name}").write_text(lines, encoding="utf-8", newline="\n")
    torch.save(_ids(tokenizer, pairs, config), folder / "pairs.pt")


def _ids(tokenizer: Any, pairs: list[tuple[str, str]], config: dict[str, Any]) -> list[Pair]:
    """The ids of both sides, each with an EOS; refuses pairs that are too long for the model."""
    sources, targets = ([e.ids for e in tokenizer.encode_batch(list(side))] for side in zip(*pairs, strict=True))
    for ids, key in ((sources, "source_length"), (targets, "context_length")):
        if (longest := max(map(len, ids))) > config[key]:
            raise ValueError(f"{key}: expected {longest} or more, found {config[key]}")
    return list(zip(sources, targets, strict=True))


class Pairs:
    """Endless batches, which depend on the seed and the pair's number alone."""

    def __init__(self, pairs: list[Pair], config: dict[str, Any], seed: int) -> None:
        self.pairs, self.seed, self.next = pairs, seed, 0
        self.start, self.pad = config["start_token_id"], config["pad_token_id"]

    def _one(self) -> tuple[Tensor, Tensor, Tensor]:
        source, target = self.pairs[Rng(self.seed, self.next).below(len(self.pairs))]
        self.next += 1
        return torch.tensor([self.start, *target[:-1]]), torch.tensor(source), torch.tensor(target)

    def batch(self, n: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """(text (n, T), source (n, S)) and targets (n, T)."""
        text, source, target = zip(*(self._one() for _ in range(n)), strict=True)
        text, source = (pad_sequence(side, True, self.pad) for side in (text, source))
        return (text, source), pad_sequence(target, True, -100)


def train(row: rows.Row, seed: int, plan: Plan, folder: Path) -> tuple[dict[str, Model], Curve]:
    """The trained model, and its learning curve."""
    stream = Pairs(torch.load(folder / "pairs.pt", weights_only=True), row.config, seed)
    model = Model(row.config)
    settings = row.settings(plan.steps, lr=plan.lr, warmup=plan.warmup())
    return {".": model}, fit(model, settings, plan.steps, lambda: stream.batch(plan.batch * PAIRS))


def _lines(folder: Path, side: str) -> list[str]:
    return (folder / f"heldout.{side}").read_text(encoding="utf-8").splitlines()


def _logits(model: Model, start: int, source: list[int], text: list[int]) -> Tensor:
    """PyTorch's logits of a text, (len(text), vocab)."""
    with torch.no_grad():
        return model(torch.tensor([[start, *text[:-1]]]), torch.tensor([source]))[0]


def _perplexity(logits: list[np.ndarray], targets: list[list[int]]) -> float:
    rows_of, ids = torch.tensor(np.concatenate(logits)).double(), torch.tensor(sum(targets, []))
    return math.exp(torch.nn.functional.cross_entropy(rows_of, ids))


def _translate(moe: str, file: Path, folder: Path, beam: int) -> list[dict[str, Any]]:
    """The best text of each held-out source."""
    found = runtime.ask_lines(moe, "translate", file, "-f", folder / "heldout.source", "--beam", str(beam),
                              *runtime.ONE_THREAD)
    return [line["translations"][0] for line in found]


def check_greedy(name: str, model: Model, pairs: list[tuple[list[int], list[int]]]) -> None:
    """Checks that each token of the runtime's greedy translations is the best in PyTorch, or tied with it."""
    config = model.config
    for source, text in pairs:
        z = _logits(model, config["start_token_id"], source, text)
        z[:, config["pad_token_id"]] = -math.inf
        z[0, config["eos_token_ids"]] = -math.inf  # a text has at least one token
        z, text = z[: config["context_length"] - 1], text[: config["context_length"] - 1]  # then only EOS is allowed
        behind = z.max(dim=-1).values - z.gather(1, torch.tensor(text)[:, None])[:, 0]
        if behind.max() > 1e-3 * z[z.isfinite()].abs().max():
            at = int(behind.argmax())
            raise Disagreement(f"{name}: token {at} of a greedy translation is {text[at]} in moe, {int(z[at].argmax())} in PyTorch")


def right(found: list[str], wanted: list[str]) -> tuple[float, list[float]]:
    """The share of correct translations, and of each the share of expected words that are at their positions."""
    same = sum(a == b for a, b in zip(found, wanted, strict=True)) / len(wanted)
    words = [(a.split(), b.split()) for a, b in zip(found, wanted, strict=True)]
    return same, [sum(x == y for x, y in zip(a, b)) / len(b) for a, b in words]


def figures(row: rows.Row, checkpoint: Path, folder: Path, moe: str) -> dict[str, Any]:
    """The measurements of an exported row; fails if the runtime disagrees with PyTorch."""
    file, tokenizer = checkpoint / "model.moe", load_tokenizer(checkpoint)
    sources, targets = ([e.ids for e in tokenizer.encode_batch(_lines(folder, s))] for s in ("source", "target"))
    model = export.read(checkpoint)
    model.set_kv_dtype(torch.float16)
    start = row.config["start_token_id"]
    wanted = [_logits(model, start, s, t).numpy() for s, t in zip(sources, targets, strict=True)]
    asked = [(s, [start, *t[:-1]]) for s, t in zip(sources, targets, strict=True)]
    found, experts = runtime.outputs(moe, file, asked)
    if not row.has_capacity():  # a capacity depends on the tokens of a call, and generation makes many calls
        greedy = _translate(moe, file, folder, 1)[:GREEDY]
        check_greedy(row.name, model, [(s, g["tokens"]) for s, g in zip(sources, greedy, strict=False)])
    exact, words = right([t["text"] for t in _translate(moe, file, folder, 5)], _lines(folder, "target"))
    pytorch, runtimes = _perplexity(wanted, targets), _perplexity(found, targets)
    return {
        "pytorch": pytorch,
        "moe": runtimes,
        "difference": perplexity_difference(row.name, pytorch, runtimes),
        "outputs": max(output_difference(row.name, a, b) for a, b in zip(wanted, found, strict=True)),
        "exact": exact,
        "words": sum(words) / len(words),
        "windows": [round(1 - share, 5) for share in words],
        "experts": experts,
    }
