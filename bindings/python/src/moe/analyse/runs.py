# SPDX-License-Identifier: MIT
"""Runs models over a text and records their routing for the analysis."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Union

import numpy as np

from ..errors import ArgumentError, UnsupportedError
from ..info import LayerInfo
from ..model import Model
from ..routing import RoutingChoices
from ..session import Session
from .measures import Array, Collapse, consistency, fluctuation, load_consistency, needed, probabilities

Source = Union[str, "os.PathLike[str]", Model]

MAX_TOKENS = 16384
THRESHOLDS = tuple(i / 10 for i in range(1, 11))
DECODED = 128  # tokens, one by one, for the time that decoding takes


@dataclasses.dataclass
class Layer:
    """The work of one MoE layer on the text. In MH-MoE a token stands for its sub-tokens."""

    layer: int
    n_experts: int
    first: Array  # (n): where each token that was read went first
    load: Array  # (n_experts): how often each expert was taken
    experts: float  # taken by a token, the mean
    positive: float  # share of inner activations above zero
    collapse: float
    needed: dict[float, Array]  # by threshold, how many tokens need 0, 1, 2 ... experts; {}: no softmax


@dataclasses.dataclass
class Recording:
    name: str
    n_tokens: int
    perplexity: float
    layers: list[Layer]  # [] of a dense model
    positive: dict[int, float]  # by layer, dense ones too: share of inner activations above zero


@dataclasses.dataclass
class SweepRow:
    """A text under one router."""

    router: str
    perplexity: float
    experts: float  # of a (sub-)token in a layer, the mean
    flops: float  # of the experts, multiplications and additions, a token
    positive: float  # share of the experts' inner activations above zero, over all layers
    seconds: float  # a token, evaluated in chunks
    decode_seconds: float  # a token, decoded one by one


class _Watched:
    """One layer, while it is watched."""

    def __init__(self, layer: LayerInfo, thresholds: Sequence[float]) -> None:
        self.n_experts, self.temperature = layer.n_experts, _temperature(layer) or 1.0
        self.first: list[Array] = []
        self.collapse: Collapse | None = None
        self.needed = {t: np.zeros(layer.n_experts + 1, np.int64) for t in thresholds}

    def add(self, choices: RoutingChoices) -> None:
        first = choices.experts[:, 0].copy()
        self.first.append(first)
        if self.collapse is None:
            self.collapse = Collapse(self.n_experts, choices.hidden.shape[1])
        self.collapse.add(choices.hidden, first)
        if not self.needed or choices.scores is None:
            return
        p = probabilities(choices.scores / np.float32(self.temperature))
        for t, counts in self.needed.items():
            counts += np.bincount(needed(p, t), minlength=len(counts))


def check_decoder(model: Model) -> None:
    """UnsupportedError for another model."""
    info = model.info
    if info.is_encoder or info.is_encoder_decoder:
        raise UnsupportedError(f"{info.name}: expected a decoder, found an encoder")


def moe_layers(model: Model) -> list[int]:
    return [i for i, layer in enumerate(model.layers) if layer.n_experts > 0]


def tokens_of(model: Model, text: str, max_tokens: int = MAX_TOKENS) -> list[int]:
    """The first tokens of a text, without special ones."""
    if max_tokens < 2:
        raise ArgumentError(f"tokens: expected 2 or more, found {max_tokens}")
    ids = model.encode(text, special=False)[:max_tokens]
    if len(ids) < 2:
        raise ArgumentError(f"text: expected two tokens or more, found {len(ids)}")
    return ids


@contextlib.contextmanager
def opened(source: Source) -> Iterator[Model]:
    """A model, closed afterwards if it was opened here."""
    if isinstance(source, Model):
        yield source
    else:
        with Model(source) as model:
            yield model


def _temperature(layer: LayerInfo) -> float | None:
    """The divisor of scores in front of the softmax over all experts; None: there is no such softmax."""
    if layer.kind == "cosine":
        return max(layer.tau, 1e-4) if layer.gate == "softmax" else None
    return 1.0 if layer.kind in ("topk", "threshold") else None


def _can_change_routers(model: Model) -> bool:
    layers = moe_layers(model)
    return bool(layers) and all(_temperature(model.layers[i]) is not None for i in layers)


def record(model: Model, tokens: Sequence[int], thresholds: Sequence[float] = ()) -> Recording:
    """Evaluates the tokens as Session.perplexity() does, with the model's own router."""
    check_decoder(model)
    shown = thresholds if _can_change_routers(model) else ()
    watched = {i: _Watched(model.layers[i], shown) for i in moe_layers(model)}
    with model.session() as session:
        session.count_routing()
        if watched:
            session.watch_routing(lambda choices: watched[choices.layer].add(choices))
        found = session.perplexity(tokens)
        layers = [_layer(session, i, w) for i, w in watched.items()]
        positive = {i: session.activations(i).share_positive
                    for i, layer in enumerate(model.layers) if layer.d_ff > 0}
    return Recording(model.info.name, len(tokens), found.perplexity, layers, positive)


def _layer(session: Session, index: int, watched: _Watched) -> Layer:
    stats = session.routing(index)
    taken = np.arange(len(stats.experts_per_token)) @ stats.experts_per_token
    first = np.concatenate(watched.first)
    assert watched.collapse is not None
    return Layer(index, watched.n_experts, first, stats.tokens_per_expert,
                 float(taken) / stats.n_tokens, _share(stats.n_positive, stats.n_activations),
                 watched.collapse.value(), watched.needed)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _expert_flops(model: Model, layer: int) -> float:
    """Multiplications and additions of one expert of the layer, for one (sub-)token."""
    return 2.0 * sum(t.rows * t.cols for t in model.tensors
                     if (t.layer, t.expert, t.part) == (layer, 0, "experts") and min(t.rows, t.cols) > 1)


def _decode_seconds(session: Session, tokens: Sequence[int]) -> float:
    """Seconds to decode one token: the mean over `tokens`, in the best of three passes."""
    best = float("inf")
    for _ in range(3):
        session.rewind(0)
        begin = time.perf_counter()
        for token in tokens:
            session.append([token])
        best = min(best, (time.perf_counter() - begin) / len(tokens))
    session.rewind(0)
    return best


def sweep(model: Model, tokens: Sequence[int], routers: Sequence[str]) -> list[SweepRow]:
    """The tokens under each router, such as "threshold:0.5" or "topk:2", as `moe perplexity --sweep`
    measures them, and the time that decoding takes. UnsupportedError for a router that cannot
    be overridden, which needs a softmax over all experts."""
    check_decoder(model)
    layers = moe_layers(model)
    if not layers:
        raise UnsupportedError(f"{model.info.name}: a dense model has no routing")
    flops = {i: _expert_flops(model, i) * model.layers[i].n_subheads for i in layers}
    with model.session() as session:
        for router in routers:
            session.set_router(router)  # a wrong one is an error before anything runs
        return [_swept(session, router, tokens, flops) for router in routers]


def _swept(session: Session, router: str, tokens: Sequence[int], flops: dict[int, float]) -> SweepRow:
    session.set_router(router)
    session.count_routing()
    begin = time.perf_counter()
    found = session.perplexity(tokens)
    seconds = (time.perf_counter() - begin) / len(tokens)
    stats = {i: session.routing(i) for i in flops}
    experts = {i: float(s.tokens_per_expert.sum()) / s.n_tokens for i, s in stats.items()}
    session.count_routing(False)
    return SweepRow(
        router, found.perplexity, sum(experts.values()) / len(experts),
        sum(experts[i] * flops[i] for i in flops),
        _share(sum(s.n_positive for s in stats.values()), sum(s.n_activations for s in stats.values())),
        seconds, _decode_seconds(session, tokens[: min(DECODED, session.context)]))


@dataclasses.dataclass
class Analysis:
    """The findings of analyse(); the figures between models are (layers,) lists, in order of the layers."""

    models: list[Recording]  # checkpoints of one run, oldest first; the last is analysed
    others: list[Recording]  # other runs
    sweep: list[SweepRow]  # [] where the router cannot be changed
    fluctuation: list[list[float]]  # from each checkpoint to the next
    consistency: list[list[float]]  # of the last checkpoint with each other run: tokens put together
    # the same: the loads of experts (X-MoE, section 4.5)
    load_consistency: list[list[float]] = dataclasses.field(default_factory=list)


def thresholds_of(text: str) -> list[float]:
    """FROM:TO:STEP, as of `moe perplexity --sweep threshold=`."""
    try:
        start, stop, step = (float(part) for part in text.split(":"))
    except ValueError:
        raise ArgumentError(f"thresholds: expected FROM:TO:STEP, found {text!r}") from None
    if not (0 <= start <= stop <= 1 and 0 < step):
        raise ArgumentError(f"thresholds: expected 0 <= FROM <= TO <= 1 and STEP above 0, found {text!r}")
    n = int((stop - start) / step + 1e-6) + 1
    if n > 1000:
        raise ArgumentError(f"thresholds: expected at most 1000, {text!r} has {n}")
    return [float(f"{start + i * step:.6g}") for i in range(n)]


def _comparable(a: Recording, b: Recording) -> None:
    if [(x.layer, len(x.first)) for x in a.layers] != [(x.layer, len(x.first)) for x in b.layers]:
        raise ArgumentError(f"{a.name} and {b.name}: expected models of one shape, with one tokenizer, found "
                            f"{_shape(a)} and {_shape(b)}")


def _shape(r: Recording) -> str:
    return f"{len(r.layers)} MoE layers over {r.n_tokens} tokens"


def compare(a: Recording, b: Recording, measure: Callable[[Array, Array], float]) -> list[float]:
    """A measure of the first choices of two models, by layer."""
    _comparable(a, b)
    return [measure(x.first, y.first) for x, y in zip(a.layers, b.layers)]


def _of_loads(a: Recording, b: Recording) -> list[float]:
    _comparable(a, b)
    return [load_consistency(x.load, y.load) for x, y in zip(a.layers, b.layers)]


def _recorded(source: Source, text: str, max_tokens: int, thresholds: Sequence[float],
              expected: list[int]) -> Recording:
    with opened(source) as model:
        check_decoder(model)
        ids = tokens_of(model, text, max_tokens)
        if expected and ids != expected:
            raise ArgumentError(f"{model.info.name}: expected the tokens of the first model, found others; "
                                "models that are compared need one tokenizer")
        expected[:] = ids
        return record(model, ids, thresholds)


def analyse(models: Sequence[Source], text: str, *, others: Sequence[Source] = (),
            thresholds: Sequence[float] = THRESHOLDS,
            topk: Sequence[int] = (), max_tokens: int = MAX_TOKENS) -> Analysis:
    """Everything that a page shows, of the first `max_tokens` tokens of a text.

    models: checkpoints of one run, oldest first; the last one is analysed. One is enough.
    others: the same model from other runs; not of a dense model.
    thresholds, topk: the routers that the last one is run with, besides its own.
    """
    if not models:
        raise ArgumentError("models: expected one or more, found none")
    ids: list[int] = []
    seen = [_recorded(m, text, max_tokens, (), ids) for m in models[:-1]]
    with opened(models[-1]) as model:
        seen.append(_recorded(model, text, max_tokens, thresholds, ids))
        routers = [f"threshold:{t:g}" for t in thresholds] + [f"topk:{k}" for k in topk]
        swept = sweep(model, ids, routers) if _can_change_routers(model) else []
    if others and not seen[-1].layers:
        raise ArgumentError(f"others: {seen[-1].name} has no routing to compare, every layer is dense")
    other = [_recorded(m, text, max_tokens, (), ids) for m in others]
    return Analysis(seen, other, swept, [compare(a, b, fluctuation) for a, b in zip(seen, seen[1:])],
                    [compare(seen[-1], o, consistency) for o in other],
                    [_of_loads(seen[-1], o) for o in other])
