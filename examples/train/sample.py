# SPDX-License-Identifier: MIT
"""Samples text from an exported checkpoint.

python sample.py CHECKPOINT -p "Once upon a time, there was a little bear" [--temp 0.7]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import export
from config import need_decoder
from data import load_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description="continue a prompt")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("-p", "--prompt", default="Once upon a time")
    parser.add_argument("-n", "--tokens", type=int, default=300)
    parser.add_argument("--temp", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    model, tokenizer = export.read(args.checkpoint), load_tokenizer(args.checkpoint)
    need_decoder(model.config)
    c = model.config
    ids = [c["bos_token_id"]] if c["add_bos"] else []
    ids += tokenizer.encode(args.prompt).ids
    while len(ids) < min(args.tokens, c["context_length"]):
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, -1]
        if args.temp > 0:
            following = int(torch.multinomial((logits / args.temp).softmax(-1), 1))
        else:
            following = int(logits.argmax())
        if following in c["eos_token_ids"]:
            break
        ids.append(following)
    print(tokenizer.decode(ids))


if __name__ == "__main__":
    main()
