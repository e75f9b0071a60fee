# SPDX-License-Identifier: MIT
"""Writes the eight kinds of text of texts/ to a file, for training or held out.

    python make_text.py FILE --size CHARACTERS [--held-out]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import texts


def main() -> None:
    parser = argparse.ArgumentParser(description="text of eight kinds, the same on every machine")
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", type=int, default=4_000_000, help="characters; the last text is complete")
    parser.add_argument("--held-out", action="store_true", help="text that training never sees")
    args = parser.parse_args()
    if args.size < 1:
        parser.error(f"--size: expected 1 or more, found {args.size}")
    seed = texts.HELD_OUT_SEED if args.held_out else texts.TRAIN_SEED
    args.file.write_text(texts.corpus(seed, args.size), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
