# SPDX-License-Identifier: MIT
"""Decoder rows: they are trained on the text of texts/, and measured by held-out perplexity.

The runtime's perplexity must agree with PyTorch's within 0.05 %, with int8 activations within 0.1 %. All
rows with the same seed see the same windows in the same order.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

import export
import rows
import runtime
import texts
from claims import SWEPT
from data import FileStream, load_tokenizer, train_tokenizer
from evaluate import window_losses
from model import Model
from plan import Plan, perplexity_difference
from steps import Curve, fit

GAMMAS = (1.0, 2.0, 4.0, 8.0, 16.0)
SHARED = Plan.batch  # windows that count together in a capacity, as in training
BASE = "dense"  # all language rows have its vocabulary


def prepare(folder: Path, plan: Plan) -> None:
    """Writes the tokenizer, the training text and the held-out text."""
    text = texts.corpus(texts.TRAIN_SEED, plan.text)
    held_out = texts.corpus(texts.HELD_OUT_SEED, plan.held_out)
    (folder / "heldout.txt").write_text(held_out, encoding="utf-8", newline="\n")
    tokenizer = train_tokenizer([text[:400_000]], rows.read(BASE).config["vocab_size"])
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.save(torch.tensor(tokenizer.encode(text).ids, dtype=torch.int32), folder / "ids.pt")


def train(row: rows.Row, seed: int, plan: Plan, folder: Path) -> tuple[dict[str, Model], Curve]:
    """The trained model, and its learning curve."""
    model = Model(row.config)
    ids = torch.load(folder / "ids.pt", weights_only=True).tolist()
    stream = FileStream(ids, row.config["bos_token_id"], row.config["context_length"], seed)
    settings = row.settings(plan.steps, lr=plan.lr, warmup=plan.warmup())
    return {".": model}, fit(model, settings, plan.steps, lambda: stream.batch(plan.batch))


def pytorch_losses(checkpoint: Path, text: Path, shared: int = 0, gamma: float | None = None) -> list[tuple[float, int]]:
    """The losses of the exported checkpoint by window (evaluate.window_losses), with K and V rounded as in the
    runtime's cache; gamma: a capacity factor in place of its own."""
    model = export.read(checkpoint)
    for layer in model.moe_layers() if gamma is not None else ():
        layer.m = layer.m | {"capacity": layer.m["capacity"] | {"gamma": gamma}}
    model.set_kv_dtype(torch.float16)
    ids = load_tokenizer(checkpoint).encode(text.read_text(encoding="utf-8")).ids
    return window_losses(model, ids, shared)


def _perplexity(losses: list[tuple[float, int]]) -> float:
    return math.exp(sum(nats for nats, _ in losses) / sum(n for _, n in losses))


def figures(row: rows.Row, checkpoint: Path, folder: Path, moe: str) -> dict[str, Any]:
    """The measurements of an exported row; fails if the runtime disagrees with PyTorch."""
    text = folder / "heldout.txt"
    found = runtime.ask(moe, "perplexity", checkpoint / "model.moe", "-f", text, "--stats", *runtime.ONE_THREAD)
    losses = pytorch_losses(checkpoint, text)
    pytorch = _perplexity(losses)
    kind = "a8" if row.has_int8_activations() else "f32"
    out = {
        "pytorch": pytorch,
        "moe": found["perplexity"],
        "windows": [round(nats / n, 5) for nats, n in losses if n == losses[0][1]],  # the last one may be shorter
        "difference": perplexity_difference(row.name, pytorch, found["perplexity"], kind),
        "experts": [layer["mean_experts_per_token"] for layer in found.get("routing", [])],
    }
    out["routing"] = runtime.routing(moe, checkpoint / "model.moe", text)
    if row.has_capacity():
        out["shared_capacity"] = _perplexity(pytorch_losses(checkpoint, text, SHARED))
        out["gammas"] = by_gamma(checkpoint, text)
    if row.name in SWEPT:
        out["sweep"] = sweep(checkpoint, text, moe)
    return out


def by_gamma(checkpoint: Path, text: Path) -> list[dict[str, float]]:
    """The exported row with other capacity factors: perplexity with the capacity counted over the tokens of a window,
    as the runtime counts it, and over those of a training batch."""
    return [{"gamma": gamma} | {name: _perplexity(pytorch_losses(checkpoint, text, shared, gamma))
                                for name, shared in (("window", 0), ("batch", SHARED))} for gamma in GAMMAS]


def sweep(checkpoint: Path, text: Path, moe: str) -> list[dict[str, Any]]:
    """The exported row with other thresholds: perplexity, experts and operations for each."""
    found = runtime.ask(moe, "perplexity", checkpoint / "model.moe", "-f", text, "--sweep", "threshold=0.1:1:0.1",
                        *runtime.ONE_THREAD)
    keys = ("router", "perplexity", "experts_per_token", "expert_flops_per_token")
    return [{key: entry[key] for key in keys} for entry in found]
