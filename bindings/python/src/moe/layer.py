# SPDX-License-Identifier: MIT
"""A single MoE layer on NumPy arrays or CPU tensors."""

from __future__ import annotations

import ctypes as c
import dataclasses
import sys
from typing import Any
from collections.abc import Sequence

import numpy as np

from . import _structs as s
from ._arrays import FloatArray, address, float_view, shaped
from ._handle import Closable, Native, optional_bytes
from ._library import call, lib
from ._router import parse_router
from .environment import Environment
from .errors import ArgumentError, ShapeError


@dataclasses.dataclass(frozen=True)
class Expert:
    """Weights of one expert, (out, in) each; a plain FFN has no gate. d_in is d_model / n_subheads,
    and d_model for the shared expert."""

    up: Any  # (d_ff, d_in)
    down: Any  # (d_in, d_ff)
    gate: Any = None  # (d_ff, d_in)
    up_bias: Any = None  # (d_ff)
    down_bias: Any = None  # (d_in)
    gate_bias: Any = None  # (d_ff)


class _Views:
    """Checked views of what the caller gave, alive until the library has packed it."""

    def __init__(self) -> None:
        self._kept: list[FloatArray] = []

    def take(self, array: Any, shape: tuple[int, ...], name: str) -> int | None:
        if array is None:
            return None
        view = shaped(array, shape, name)
        self._kept.append(view)
        return address(view)

    def expert(self, e: Expert, d_ff: int, d_in: int, name: str) -> s.ExpertWeights:
        shapes = {"gate": (d_ff, d_in), "up": (d_ff, d_in), "down": (d_in, d_ff),
                  "gate_bias": (d_ff,), "up_bias": (d_ff,), "down_bias": (d_in,)}
        return s.ExpertWeights(**{part: self.take(getattr(e, part), shape, f"{name}.{part}")
                                  for part, shape in shapes.items()})


def _matrix(array: Any, name: str) -> tuple[int, int]:
    shape = float_view(array, name).shape
    if len(shape) != 2:
        raise ShapeError(f"{name}: expected a matrix, found {shape}")
    return shape[0], shape[1]


class MoeLayer(Closable):
    """(..., d_model) to (..., d_model); no residual, no norm. For one thread at a time.

    All arrays are float32 and C-contiguous, of NumPy or in CPU memory of PyTorch (or anything else
    that speaks DLPack). They are packed into the format asked for and not needed afterwards.

    experts:       all of the same shapes.
    router_weight: (n_experts, d_in); for a cosine router the expert embeddings (n_experts, d_e).
    router:        "topk:2", "threshold:0.9", "topk:2,renormalised", "threshold:0.9,one"
                   (weights of 1), "cosine:1,tau=0.07", "sigmoid:2", "base" or "sparsemixer".
    activation:    "relu", "gelu", "gelu_tanh", "silu", "relu2" or "tanh".
    weights:       format of experts, head and merge: "ternary2", "ternary3", "int8", "int8_group",
                   "int6_k", "int2_k", "int3_k", "tcq2", "tcq3", "int4", "int4_min", "int4_k", "nl4", "nf4",
                   "fp4", "f32", "bf16" or "f16".
    activations:   "f32", "a8", "a8_block", "a8_group" (formats with scales per group);
                   None: what suits the format.
    router_bias:   (n_experts); for a sigmoid router the selection bias.
    router_proj:   (d_e, d_in), for a cosine router.
    shared:        an expert on d_model whose output is added; shared_gate (d_model) puts
                   sigmoid(x . g) in front of it.
    n_subheads:    more than 1: MH-MoE. head and merge (d_model, d_model): its layers in front of and
                   behind the sub-tokens, with head_bias and merge_bias (d_model); None: no such layer.
    max_rows:      rows computed at once; more cost more memory.
    """

    _what = "layer"

    def __init__(self, experts: Sequence[Expert], router_weight: Any = None, *,
                 router: str = "topk:1", activation: str = "silu", weights: str = "f32",
                 activations: str | None = None, router_bias: Any = None,
                 router_proj: Any = None, shared: Expert | None = None,
                 shared_gate: Any = None, n_subheads: int = 1, head: Any = None,
                 head_bias: Any = None, merge: Any = None, merge_bias: Any = None,
                 max_rows: int = 256, environment: Environment | None = None) -> None:
        if not experts:
            raise ArgumentError("experts: expected at least one")
        if router_proj is not None and not router.startswith("cosine"):
            raise ArgumentError(f"router_proj: only a cosine router has one, found '{router}'")
        views = _Views()
        n = len(experts)
        d_ff, d_in = _matrix(experts[0].up, "experts[0].up")
        d_model = d_in * n_subheads
        d_e = 0 if router_proj is None else _matrix(router_proj, "router_proj")[0]
        params = s.LayerParams(
            d_model=d_model, d_ff=d_ff, n_experts=n, n_subheads=n_subheads, max_rows=max_rows,
            activation=optional_bytes(activation), router=c.pointer(parse_router(router)),
            weights=optional_bytes(weights), activations=optional_bytes(activations), d_e=d_e)
        params.experts = (s.ExpertWeights * n)(
            *[views.expert(e, d_ff, d_in, f"experts[{i}]") for i, e in enumerate(experts)])
        arrays: dict[str, tuple[Any, tuple[int, ...]]] = {
            "router_weight": (router_weight, (n, d_e or d_in)), "router_bias": (router_bias, (n,)),
            "router_proj": (router_proj, (d_e, d_in)), "shared_gate": (shared_gate, (d_model,)),
            "head": (head, (d_model, d_model)), "head_bias": (head_bias, (d_model,)),
            "merge": (merge, (d_model, d_model)), "merge_bias": (merge_bias, (d_model,))}
        for name, (array, shape) in arrays.items():
            setattr(params, name, views.take(array, shape, name))
        if shared is not None:
            params.shared_d_ff = _matrix(shared.up, "shared.up")[0]
            params.shared = c.pointer(views.expert(shared, params.shared_d_ff, d_model, "shared"))
        self.d_model = d_model
        self._told = f"d_model {d_model}, {n} experts, router {router}, weights {weights}"
        self._create(params, environment)

    def _describe(self) -> str:
        return self._told

    def _create(self, params: s.LayerParams, environment: Environment | None) -> None:
        env = Environment() if environment is None else environment
        layer = c.c_void_p()
        with env._pointer() as e:
            call(lib.moe_layer_create, e, c.byref(params), c.byref(layer))
            assert layer.value is not None
            self._native = Native(layer.value, lib.moe_layer_free, env._open())
        if environment is None:
            env.close()  # the layer alone holds it now

    def forward(self, x: Any, out: Any = None) -> Any:
        """The layer's output for x, both (..., d_model) float32 and C-contiguous. `out` may be x
        itself. Without it the result is a new array, a tensor where x is PyTorch's. Neither is
        copied. No gradients. NonFiniteError for NaN or infinity in x, before anything is written;
        bit-identical for any number of threads."""
        source = float_view(x, "x")
        if source.ndim == 0 or source.shape[-1] != self.d_model:
            raise ShapeError(f"x: expected (..., {self.d_model}), found {source.shape}")
        target = np.empty_like(source) if out is None else shaped(out, source.shape, "out")
        if isinstance(out, np.ndarray) and not out.flags.writeable:
            raise ArgumentError("out: the array is read-only")
        if address(target) != address(source) and np.may_share_memory(source, target):
            raise ArgumentError("out: overlaps x without being x")
        with self._pointer() as layer:
            call(lib.moe_layer_forward, layer, address(source), source.size // self.d_model,
                 address(target))
        return _like(x, target) if out is None else out

    __call__ = forward


def _like(x: Any, result: FloatArray) -> Any:
    """The result as x's kind of array."""
    if type(x).__module__.split(".")[0] == "torch":
        return sys.modules["torch"].from_numpy(result)
    return result
