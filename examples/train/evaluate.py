# SPDX-License-Identifier: MIT
"""Held-out text and its perplexity under an exported checkpoint.

    python evaluate.py CHECKPOINT --text ../models/stories.heldout.txt --json ../models/stories.json

The tokens of the whole text are split into non-overlapping windows of context_length - 1 tokens, with
BOS in front of each if the checkpoint says add_bos (otherwise context_length tokens without BOS).
Windows are independent. Every text token after the first position of a window is scored, BOS never
is; perplexity = exp(mean negative log-likelihood).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch
from torch.nn import functional as F

import export
from config import need_decoder
from data import held_out_text, load_tokenizer, windows
from model import Model


def negative_log_likelihood(model: Model, ids: list[int]) -> tuple[float, int]:
    """The sum over the scored tokens in nats, and their number."""
    c, total, scored = model.config, 0.0, 0
    bos = c["bos_token_id"] if c["add_bos"] else None
    for window in windows(ids, c["context_length"], bos):
        if window.shape[1] < 2:
            continue
        with torch.no_grad():  # the last token is only predicted
            logits = model(window[:, :-1])[0]
        total += F.cross_entropy(logits.double(), window[0, 1:], reduction="sum").item()
        scored += logits.shape[0]
    return total, scored


def main() -> None:
    parser = argparse.ArgumentParser(description="held-out perplexity of an exported checkpoint")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--text", type=Path, help="held-out text; generated if the file does not exist")
    parser.add_argument("--json", type=Path, help="file for the result")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.text and not args.text.exists():
        args.text.parent.mkdir(parents=True, exist_ok=True)
        args.text.write_text(held_out_text(), encoding="utf-8", newline="\n")
    text = args.text.read_text(encoding="utf-8") if args.text else held_out_text()
    model, tokenizer = export.read(args.checkpoint), load_tokenizer(args.checkpoint)
    need_decoder(model.config)
    ids = tokenizer.encode(text).ids
    total, scored = negative_log_likelihood(model, ids)
    c = model.config
    result = {
        "model": c["name"],
        "perplexity": math.exp(total / scored),
        "negative_log_likelihood": total,
        "text": args.text.name if args.text else "held_out_text()",
        "text_bytes": len(text.encode()),
        "text_tokens": len(ids),
        "scored_tokens": scored,
        "context_length": c["context_length"],
        "window_text_tokens": c["context_length"] - (1 if c["add_bos"] else 0),
        "stride": c["context_length"] - (1 if c["add_bos"] else 0),
        "bos_in_front": c["add_bos"],
        "bits_per_byte": total / math.log(2) / len(text.encode()),
        "computed": "PyTorch, float32 outside the ternary and int8 matrices, K and V in float32",
    }
    print(json.dumps(result, indent=2))
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
