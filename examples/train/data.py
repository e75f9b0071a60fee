# SPDX-License-Identifier: MIT
"""Text to windows of token ids: the tokenizer, the training stream, the held-out windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor

from stories import story
from stories.engine import Rng

BOS, EOS, PAD, MASK = "<|bos|>", "<|eos|>", "<|pad|>", "<|mask|>"
TRAIN_SEED, HELD_OUT_SEED = 1, 2


def story_texts(n: int) -> Iterator[str]:
    """The first n training stories."""
    return (story(TRAIN_SEED, i) for i in range(n))


def train_tokenizer(
    texts: Iterable[str], vocab: int, special: Sequence[str] = (BOS, EOS), around: str | None = None
) -> Tokenizer:
    """Trains byte-level BPE on texts; the first ids are the special tokens. around: the special tokens
    added to a text, such as "$A <|eos|>"."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(special),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    if around is not None:
        ids = list(zip(special, range(len(special)), strict=True))
        tokenizer.post_processor = processors.TemplateProcessing(single=around, special_tokens=ids)
    return tokenizer


class Stream:
    """Endless training windows. Each starts with BOS and a new story, or, one time in five, with BOS
    and a position inside a story, like windows of a long text. Two stories are separated by EOS and
    BOS or, one time in five, by an empty line, as in a book. With `every` = n, only each n-th story is
    taken, for several workers."""

    def __init__(
        self, tokenizer: Tokenizer, length: int, next_story: int = 0, every: int = 1
    ) -> None:
        self.tokenizer, self.length = tokenizer, length
        self.next, self.every = next_story, every
        self.bos, self.eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
        self.blank = tokenizer.encode("\n\n").ids

    def _window(self) -> list[int]:
        ids, rng = [self.bos], Rng(TRAIN_SEED, self.next, 8)
        while len(ids) <= self.length:
            new = self.tokenizer.encode(story(TRAIN_SEED, self.next)).ids
            inside = len(ids) == 1 and rng.below(5) == 0
            ids += new[rng.below(len(new)) :] if inside else new
            as_book = Rng(TRAIN_SEED, self.next, 7).below(5) == 0
            ids += self.blank if as_book else [self.eos, self.bos]
            self.next += self.every
        return ids[: self.length + 1]

    def batch(self, rows: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, both (rows, length)."""
        ids = torch.tensor([self._window() for _ in range(rows)])
        return ids[:, :-1], ids[:, 1:]


class FileStream:
    """Endless training windows of one long text: BOS, if there is one, and tokens from a position that
    depends on the seed and the window's number alone."""

    def __init__(
        self, ids: list[int], bos: int | None, length: int, seed: int, first: int = 0, every: int = 1
    ) -> None:
        self.ids, self.front = torch.tensor(ids), [] if bos is None else [bos]
        self.room = length + 1 - len(self.front)
        self.seed, self.next, self.every = seed, first, every
        if len(ids) < self.room:
            raise ValueError(f"text: expected {self.room} tokens or more, found {len(ids)}")

    def window(self) -> Tensor:
        begin = Rng(self.seed, self.next).below(len(self.ids) - self.room + 1)
        self.next += self.every
        return torch.cat((torch.tensor(self.front, dtype=torch.long), self.ids[begin : begin + self.room]))

    def batch(self, rows: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, both (rows, length)."""
        ids = torch.stack([self.window() for _ in range(rows)])
        return ids[:, :-1], ids[:, 1:]


def held_out_text(n_stories: int = 120) -> str:
    """The held-out stories, separated by empty lines."""
    return "\n\n".join(story(HELD_OUT_SEED, i, held_out=True) for i in range(n_stories)) + "\n"


def windows(ids: list[int], context: int, bos: int | None) -> Iterator[Tensor]:
    """Perplexity windows, (1, <= context): non-overlapping pieces of the text's tokens, each with
    BOS in front if there is one. Every token after the first of a window is scored."""
    room = context if bos is None else context - 1
    front = [] if bos is None else [bos]
    for start in range(0, len(ids), room):
        yield torch.tensor([front + ids[start : start + room]])


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
