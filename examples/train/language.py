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
from data import FileStream, load_tokenizer, train_tokenizer
from evaluate import negative_log_likelihood
from model import Model
from plan import Plan, perplexity_difference
from steps import fit

BASE = "dense"  # all language rows have its vocabulary


def prepare(folder: Path, plan: Plan) -> None:
    """Writes the tokenizer, the training text and the held-out text."""
    text = texts.corpus(texts.TRAIN_SEED, plan.text)
    held_out = texts.corpus(texts.HELD_OUT_SEED, plan.held_out)
    (folder / "heldout.txt").write_text(held_out, encoding="utf-8", newline="\n")
    tokenizer = train_tokenizer([text[:400_000]], rows.read(BASE).config["vocab_size"])
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.save(torch.tensor(tokenizer.encode(text).ids, dtype=torch.int32), folder / "ids.pt")


def train(row: rows.Row, seed: int, plan: Plan, folder: Path) -> tuple[dict[str, Model], float]:
    """The trained model, and the mean loss of the last tenth of its steps."""
    model = Model(row.config)
    ids = torch.load(folder / "ids.pt", weights_only=True).tolist()
    stream = FileStream(ids, row.config["bos_token_id"], row.config["context_length"], seed)
    settings = row.settings(plan.steps, lr=plan.lr, warmup=plan.warmup())
    return {".": model}, fit(model, settings, plan.steps, lambda: stream.batch(plan.batch))


def pytorch_perplexity(checkpoint: Path, text: Path) -> float:
    """The perplexity of the exported checkpoint, with K and V rounded as in the runtime's cache."""
    model = export.read(checkpoint)
    model.set_kv_dtype(torch.float16)
    ids = load_tokenizer(checkpoint).encode(text.read_text(encoding="utf-8")).ids
    total, scored = negative_log_likelihood(model, ids)
    return math.exp(total / scored)


def figures(row: rows.Row, checkpoint: Path, folder: Path, moe: str) -> dict[str, Any]:
    """The measurements of an exported row; fails if the runtime disagrees with PyTorch."""
    text = folder / "heldout.txt"
    found = runtime.ask(moe, "perplexity", checkpoint / "model.moe", "-f", text, "--stats", *runtime.ONE_THREAD)
    pytorch = pytorch_perplexity(checkpoint, text)
    kind = "a8" if row.has_int8_activations() else "f32"
    return {
        "pytorch": pytorch,
        "moe": found["perplexity"],
        "difference": perplexity_difference(row.name, pytorch, found["perplexity"], kind),
        "experts": [layer["mean_experts_per_token"] for layer in found.get("routing", [])],
    }


def sweep(name: str, seed: int, folder: Path, moe: str) -> list[dict[str, Any]]:
    """A finished row with other thresholds: perplexity, experts and operations for each."""
    return runtime.ask(moe, "perplexity", folder / f"{name}.{seed}/model.moe", "-f", folder / "language/heldout.txt",
                       "--sweep", "threshold=0.1:1:0.1", *runtime.ONE_THREAD)
