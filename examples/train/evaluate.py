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


BATCH = 16  # windows that are evaluated at once


def window_losses(model: Model, ids: list[int], shared: int = 0) -> list[tuple[float, int]]:
    """The sum over the scored tokens of each window in nats, and their number. shared: how many windows count together
    in a capacity, as those of a batch do in training; 0: each on its own, as in a call of the runtime."""
    c, out = model.config, []
    bos = c["bos_token_id"] if c["add_bos"] else None
    found = [w[0] for w in windows(ids, c["context_length"], bos) if w.shape[1] > 1]
    for begin in range(0, len(found), shared or BATCH):
        part = found[begin : begin + (shared or BATCH)]
        # Windows of equal length go together: all but the last.
        cut = len(part) if len(part[-1]) == len(part[0]) else len(part) - 1
        for batch in (part[:cut], part[cut:]):
            if batch:
                out += _losses(model, torch.stack(batch), bool(shared))
    return out


def _losses(model: Model, batch: torch.Tensor, together: bool) -> list[tuple[float, int]]:
    model.share_capacity(together)
    with torch.no_grad():  # the last token is only predicted
        logits = model(batch[:, :-1]).double()
    nats = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none").view(len(batch), -1)
    return [(row.sum().item(), row.numel()) for row in nats]


def negative_log_likelihood(model: Model, ids: list[int], shared: int = 0) -> tuple[float, int]:
    """The sum over the scored tokens in nats, and their number; shared: as in window_losses."""
    losses, numbers = zip(*window_losses(model, ids, shared), strict=True)
    return sum(losses), sum(numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description="held-out perplexity of an exported checkpoint")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--text", type=Path, help="held-out text; generated if the file does not exist")
    parser.add_argument("--json", type=Path, help="file for the result")
    parser.add_argument("--capacity-windows", type=int, default=0, metavar="N",
                        help="count the tokens of N windows together in a capacity, as training counts those of a batch "
                             "(default: each window alone, as moe perplexity does)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if args.capacity_windows < 0:
        parser.error(f"--capacity-windows: expected 0 or more, found {args.capacity_windows}")
    torch.set_num_threads(args.threads)
    if args.text and not args.text.exists():
        args.text.parent.mkdir(parents=True, exist_ok=True)
        args.text.write_text(held_out_text(), encoding="utf-8", newline="\n")
    text = args.text.read_text(encoding="utf-8") if args.text else held_out_text()
    model, tokenizer = export.read(args.checkpoint), load_tokenizer(args.checkpoint)
    need_decoder(model.config)
    ids = tokenizer.encode(text).ids
    total, scored = negative_log_likelihood(model, ids, args.capacity_windows)
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
        "capacity_windows": args.capacity_windows,
        "bits_per_byte": total / math.log(2) / len(text.encode()),
        "computed": "PyTorch, float32 outside the ternary and int8 matrices, K and V in float32",
    }
    print(json.dumps(result, indent=2))
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
