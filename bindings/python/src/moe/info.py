# SPDX-License-Identifier: MIT
"""Descriptions of models, tensors and routing by the library, as plain values."""

from __future__ import annotations

import ctypes as c
import dataclasses
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from . import _structs as s
from ._constants import Finish
from ._library import call, lib, text_of
from ._router import router_text

class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


_T = TypeVar("_T", bound=_Dataclass)


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    name: str
    vocab_size: int
    d_model: int
    n_layers: int
    n_moe_layers: int
    context_length: int
    bos_token: int  # -1: none
    eos_tokens: tuple[int, ...]
    n_parameters: int
    n_active_parameters: int  # used for one token; thresholds counted at their largest
    weight_bytes: int  # all weights in memory, padding included
    bytes_per_token: int  # weights read for one token, routers and head included
    file_bytes: int
    head: str  # "tokens", "classes", "tags", "span" or "none"
    n_outputs: int  # of the head: vocab_size, the labels, 2 or 0
    is_encoder: int  # 1: for Session.encode() and what is built on it alone
    mask_token: int  # stands for a token that an encoder is to find; -1: none
    is_encoder_decoder: int  # 1: for Session.translate(); the next three are then set
    n_encoder_layers: int
    source_length: int  # most tokens of a source
    start_token: int  # in front of each text of the decoder; -1: none
    pooling: str  # of vectors of texts; "": the model file says nothing of them
    normalized: int  # 1: to length 1
    vector_tokens: int  # most tokens of a text; 0: as many as the context holds
    n_prompts: int  # Model.prompts
    default_prompt: int  # index of a prompt; -1: none
    file_hash: int  # tells model files apart
    device: str  # that runs it
    n_predictions: int  # 1: a layer beside the others guesses further tokens, which drafts use


@dataclasses.dataclass(frozen=True)
class LayerInfo:
    n_heads: int
    n_kv_heads: int
    head_dim: int
    window: int  # 0: sees everything
    d_ff: int  # of the dense FFN, or of one expert
    n_experts: int  # 0: dense
    n_active: int  # largest number of experts per (sub-)token
    n_subheads: int  # MH-MoE's heads, otherwise 1
    shared_d_ff: int  # 0: no shared expert
    router: str  # as Session.set_router() takes it, "topk:2"; "" for a dense layer
    kind: str  # of router, "topk"; "" for a dense layer
    activation: str
    n_sublayers: int  # X-MoE's blocks in each expert; 0: an expert is one FFN
    k: int  # experts that each (sub-)token takes; 0: as many as reach the threshold
    threshold: float  # sum of probabilities; with k 0
    tau: float  # temperature of a cosine router, otherwise 0
    gamma: float  # capacity factor; 0: an expert takes all that choose it
    weights: str  # of experts: "raw", "renormalised", "chosen", "one"; "": no choice
    gate: str  # of a cosine router: "softmax", "sigmoid"; otherwise ""
    has_head: int  # MH-MoE: 1 with a head layer in front of the sub-tokens
    has_merge: int  # 1 with a merge layer behind them
    n_cross_heads: int  # of attention to an encoder's output; 0: none
    kv_latent: int  # numbers of a position under KvType.LATENT; 0: there is no latent
    mixer: str  # in place of attention or beside it, "short_conv"; "": none
    state_bytes: int  # of a layer with a mixer, at one position of a session


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """One stored matrix or vector, as the file describes it."""

    layer: int  # -1: none
    expert: int  # -1: none
    rows: int
    cols: int
    part: str
    role: str
    format: str
    scale: str
    activations: str
    codec: str
    bytes: int  # in memory
    file_offset: int  # of its segment


@dataclasses.dataclass(frozen=True)
class Perplexity:
    n_scored: int  # tokens whose probability was taken
    mean_nll: float  # mean negative log-probability, nats per token
    perplexity: float  # exp(mean_nll)


@dataclasses.dataclass(frozen=True)
class GenerateResult:
    finish: Finish
    n_prompt: int
    n_generated: int
    prompt_seconds: float
    generate_seconds: float  # the time between the iterator's steps included
    n_drafted: int  # tokens drafted (max_draft)
    n_accepted: int  # of these, generated


@dataclasses.dataclass(frozen=True)
class ChatResult(GenerateResult):
    """n_prompt counts the whole conversation up to the reply."""

    n_reused: int  # of n_prompt: held by the session already and not evaluated again
    n_thinking: int  # of n_generated: thinking and its tags
    n_tool_calls: int = 0  # of a chat with tools


@dataclasses.dataclass(frozen=True)
class RoutingStats:
    n_experts: int
    n_tokens: int  # (sub-)tokens routed
    n_dropped: int  # pairs refused by a capacity
    n_activations: int  # inner activations computed
    n_positive: int  # of these, above zero
    tokens_per_expert: npt.NDArray[np.uint64]  # (n_experts)
    experts_per_token: npt.NDArray[np.uint64]  # (n_experts + 1): served by i experts
    n_skipped: int  # pairs that "resident=P" skipped
    skipped_probability: float  # of those, summed up


@dataclasses.dataclass(frozen=True)
class ActivationStats:
    """Inner activations of one layer, dense or of experts: act(gate) of a gated network, act(up) of
    another. Those of a shared expert are not counted."""

    n_activations: int  # 0 for a layer without an FFN
    n_positive: int  # of these, above zero

    @property
    def share_positive(self) -> float:
        return self.n_positive / self.n_activations if self.n_activations else 0.0


@dataclasses.dataclass(frozen=True)
class ExpertStats:
    """Experts that operations used: one MoE layer of one chunk of tokens uses an expert once. All
    zero where every expert stays in memory."""

    n_uses: int
    n_hits: int  # of these, experts found in memory
    read_bytes: int  # for the others
    wait_seconds: float  # for which calls waited until experts were read


@dataclasses.dataclass(frozen=True)
class MemoryStats:
    """Memory use under a memory cap. The bytes are of the model and all of its sessions,
    and zero without a cap."""

    session: ExpertStats  # of this session
    model: ExpertStats  # of all sessions since the model was opened
    cap_bytes: int
    counted_bytes: int  # of everything that counts against the cap, now
    peak_bytes: int  # the most that this has been
    arena_bytes: int  # room for experts
    expert_bytes: int  # of the experts that are in it
    filled_bytes: int  # read into free room, not for a miss


def plain(cls: type[_T], struct: c.Structure, **other: Any) -> _T:
    """The fields of a struct as a dataclass; `other` are those that need more than copying."""
    values = dict(other)
    for field in dataclasses.fields(cls):
        if field.name not in values:
            value = getattr(struct, field.name)
            values[field.name] = text_of(value) if str(field.type) == "str" else value
    return cls(**values)


def layer_info(info: s.ModelLayerInfo, router: s.Router) -> LayerInfo:
    """`router`: zero for a dense layer."""
    texts = {name: text_of(getattr(router, name)) for name in ("kind", "weights", "gate")}
    numbers = {name: getattr(router, name) for name in ("k", "threshold", "tau", "gamma")}
    return plain(LayerInfo, info, router=router_text(router) if router.kind else "", **texts, **numbers)


def model_info(info: s.ModelInfo) -> ModelInfo:
    return plain(ModelInfo, info, eos_tokens=tuple(info.eos_tokens[: info.n_eos_tokens]))


def routing_stats(stats: s.RoutingStats) -> RoutingStats:
    """A copy: the session goes on counting in its own arrays."""

    def copy(counts: Any, n: int) -> npt.NDArray[np.uint64]:
        return np.array(counts[:n], np.uint64)

    return plain(RoutingStats, stats,
                 tokens_per_expert=copy(stats.tokens_per_expert, stats.n_experts),
                 experts_per_token=copy(stats.experts_per_token, stats.n_experts + 1))


def memory_stats(stats: s.MemoryStats) -> MemoryStats:
    return plain(MemoryStats, stats, session=plain(ExpertStats, stats.session),
                 model=plain(ExpertStats, stats.model))


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """The memory that sessions get under their model's cap."""

    chunk: int  # rows evaluated at once
    cap_bytes: int  # 0: none
    needed_bytes: int  # the sum of Model.memory()
    least_bytes: int  # the smallest cap under which all sessions can be made
    expert_bytes: int  # of the weights of all experts
    n_experts: int  # of all layers
    n_in_memory: int  # so many of them have room beside all sessions
    session_bytes: int  # of each session: further ones take it from the experts in memory


@dataclasses.dataclass(frozen=True)
class MemoryInfo:
    """Memory of this machine, or of this process's memory cgroup if that is smaller."""

    total_bytes: int
    available_bytes: int  # can still be taken without swapping; caches of files count as free
    budget_bytes: int  # 15/16 of that: the largest automatic cap


def memory_info() -> MemoryInfo:
    """UnsupportedError if the system does not report it."""
    info = s.MemoryInfo()
    call(lib.moe_get_memory_info, c.byref(info))
    return plain(MemoryInfo, info)
