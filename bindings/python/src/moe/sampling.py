# SPDX-License-Identifier: MIT
"""Sampling parameters and generated pieces."""

from __future__ import annotations

import ctypes as c
import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, TypedDict

from . import _structs as s
from ._arrays import int32
from .errors import RangeError


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Applied in this order: bias, repetition penalty, temperature, top-k, top-p, min-p."""

    temperature: float = 0.0  # 0: greedy, ties to the lower id
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # at least this share of the best probability; 0: off
    repetition_penalty: float = 1.0  # 1: off; in 0.01..100
    repetition_window: int = 64  # last tokens that are penalised
    seed: int = 0  # same seed, same text
    bias: Mapping[int, float] | None = None  # token: added to its logit; -inf bans it


class SamplingArguments(TypedDict, total=False):
    """The fields of Sampling as keyword arguments, for type checkers: of Session.generate(), Chat.reply() and
    Model.batch()."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    repetition_window: int
    seed: int
    bias: Mapping[int, float] | None


SAMPLING_NAMES = frozenset(f.name for f in dataclasses.fields(Sampling))


@dataclasses.dataclass(frozen=True)
class ModelSampling:
    """How to sample a conversation where nobody says otherwise: what the checkpoint's authors
    recommend, if the model file has it, otherwise temperature 0.8, top_p 0.95 and min_p 0.05."""

    in_file: bool
    arguments: dict[str, float | int]
    """Keyword arguments of Chat.reply(), Session.generate() and Sampling: all but seed and bias."""


def model_sampling(struct: s.Sampling, in_file: bool) -> ModelSampling:
    def number(name: str) -> float | int:
        value: float | int = getattr(struct, name)
        return value if isinstance(value, int) else float(f"{value:.6g}")  # 0.95, not its float32

    names = [f.name for f in dataclasses.fields(Sampling) if f.name not in ("seed", "bias")]
    return ModelSampling(in_file, {name: number(name) for name in names})


def sampling_struct(sampling: Sampling) -> s.Sampling:
    """As the library takes it; the struct keeps its arrays."""
    bias = sampling.bias or {}
    array = (s.LogitBias * len(bias))(*[s.LogitBias(int32(t, "bias"), b) for t, b in bias.items()])
    values = {f.name: getattr(sampling, f.name) for f in dataclasses.fields(sampling)}
    values.update(n_bias=len(bias), bias=c.cast(array, c.POINTER(s.LogitBias)))
    struct = s.Sampling(**values)
    struct.keep = array
    return struct


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    token: int
    logprob: float  # natural logarithm, of the model's own distribution before any filter


@dataclasses.dataclass(frozen=True)
class Sample:
    token: int
    logprob: float
    top: tuple[TokenLogprob, ...]  # most probable candidates, best first


@dataclasses.dataclass(frozen=True)
class Piece:
    """One generated token. `text` holds whole characters and may be empty while
    a character is incomplete. str(piece) is the text."""

    token: int  # -1: text that was held back, without a new token
    text: str
    logprob: float
    top: tuple[TokenLogprob, ...]
    thinking: bool = False  # of a chat's reply: not part of the answer
    tool_call: dict[str, Any] | None = None  # "id", "name", "arguments"; the piece has no text then

    def __str__(self) -> str:
        return self.text


_MAX_TOP = 64


def n_candidates(logprobs: int) -> int:
    n = operator.index(logprobs)
    if not 0 <= n <= _MAX_TOP:
        raise RangeError(f"logprobs: expected 0 to {_MAX_TOP}, found {n}")
    return n


def top_of(items: c.Array[s.TokenLogprob] | c._Pointer[s.TokenLogprob],
           n: int) -> tuple[TokenLogprob, ...]:
    """The candidates that exist: a small vocabulary has fewer than were asked for."""
    return tuple(TokenLogprob(items[i].token, items[i].logprob)
                 for i in range(n) if items[i].token >= 0)
