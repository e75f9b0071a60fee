# SPDX-License-Identifier: MIT
"""Checks a whole configuration before anything slow: every key, every value, and what is missing.

The keys, the required ones and the defaults are those of formats/README.md; four more keys are for training
only (routers.TRAINING_KEYS). An error names the key by its path, what was expected, and what was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Config = dict[str, Any]
Check = Callable[[Any], str]  # what was expected, or "" if the value is that


class BadConfig(ValueError):
    """An invalid configuration."""


def _is_number(v: Any) -> bool:
    return isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < 1e300  # false for a NaN


def count(low: int, high: int | None = None) -> Check:
    wanted = f"an integer of {low} or more" if high is None else f"an integer in {low}..{high}"
    return lambda v: "" if isinstance(v, int) and _is_number(v) and low <= v <= (v if high is None else high) else wanted


def number(low: float = -math.inf, above: float = -math.inf, high: float = math.inf) -> Check:
    wanted = "a number" + (f" of {low:g} or more" if low > -math.inf else "") + (
        f" above {above:g}" if above > -math.inf else "") + (f", at most {high:g}" if high < math.inf else "")
    return lambda v: "" if _is_number(v) and low <= v <= high and v > above else wanted


def choice(*names: str) -> Check:
    return lambda v: "" if v in names and isinstance(v, str) else f"one of {', '.join(names)}"


def or_null(check: Check) -> Check:
    return lambda v: "" if v is None else (f"{wanted}, or null" if (wanted := check(v)) else "")


def flag(v: Any) -> str:
    return "" if isinstance(v, bool) else "true or false"


def word(v: Any) -> str:
    return "" if isinstance(v, str) else "a text"


def ids(v: Any) -> str:
    return "" if isinstance(v, list) and not any(map(count(0), v)) else "a list of token ids"


def index(v: Any) -> str:
    """The layers that an entry of `layers` changes."""
    wanted, is_layer = 'a layer, a list of layers, or {"from": layer, "step": number}', count(0)
    if isinstance(v, dict):
        return wanted if set(v) - {"from", "step"} or is_layer(v.get("from")) or count(1)(v.get("step", 1)) else ""
    return wanted if any(map(is_layer, v if isinstance(v, list) else [v])) else ""


def anything(v: Any) -> str:
    return ""


ACTIVATIONS = choice("relu", "gelu", "gelu_tanh", "silu", "relu2", "tanh")
NORMS = {"norm": flag, "out_norm": flag, "post_norm": flag}
MODEL: dict[str, Check] = {
    "model_type": choice("moe_research"), "layout_version": count(1, 1), "name": word,
    "vocab_size": count(1), "d_model": count(1), "n_layers": count(1), "context_length": count(1),
    "positions": choice("rope", "learned", "none"), "tie_embeddings": flag, "embedding_norm": flag, "final_norm": flag,
    "embedding_multiplier": number(), "residual_multiplier": number(), "logit_multiplier": number(),
    "bos_token_id": or_null(count(0)), "pad_token_id": or_null(count(0)), "mask_token_id": or_null(count(0)),
    "eos_token_ids": ids, "add_bos": flag, "n_encoder_layers": count(0), "source_length": count(0),
    "encoder_norm": flag, "start_token_id": count(0), "tokenizer": or_null(word), "norm": anything, "head": anything,
    "layer_defaults": anything, "layers": anything, "precision": anything,
}
NORM = {"kind": choice("rms", "layer"), "eps": number(above=0)}
HEAD = {"kind": choice("tokens", "classes", "tags", "span", "none"), "n_labels": count(0), "dense": flag, "norm": flag,
        "act": ACTIVATIONS}
ROPE = {"kind": choice("half", "interleaved", "none"), "dims": count(1), "theta": number(above=0), "scaling": anything}
ATTENTION = {"n_heads": count(1), "n_kv_heads": count(1), "head_dim": count(1), "window": count(0), "causal": flag,
             "multiplier": or_null(number(above=0)), "rope": anything, "qk_norm": choice("none", "head", "whole"),
             "sub_norm": flag, "sinks": flag, **NORMS}
FFN = {"kind": choice("dense", "moe"), "d_ff": count(1), "gated": flag, "act": ACTIVATIONS, "alpha": number(),
       "limit": number(0), "up_offset": number(), "sub_norm": flag, "moe": anything, **NORMS}
MOE = {"n_experts": count(1, 1 << 16), "n_subheads": count(1), "mh": flag, "head": or_null(flag), "merge": or_null(flag),
       "n_sublayers": count(0, 64), "router": anything, "shared": anything, "capacity": anything}
SHARED = {"d_ff": count(1), "gated": flag}
CAPACITY = {"gamma": number(0), "min_capacity": count(0), "order": choice("priority", "arrival")}
WEIGHTS = ("auto", "f32", "bf16", "f16", "int8", "ternary2", "ternary3")  # those that training imitates
# Kinds of scaled rotary positions, with the keys without a default (rope.py).
SCALINGS = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_context"),
            "yarn": ("factor", "original_context"), "longrope": ("short_factor", "long_factor", "original_context")}
K, SCALE = count(1), number()
ROUTERS: dict[str, dict[str, Check]] = {
    "softmax": {"k": K, "weights": choice("raw", "renormalised", "chosen", "one"), "scale": SCALE, "rank": count(1)},
    "threshold": {"t": number(0, high=1), "min_k": count(1), "max_k": count(0),
                  "weights": choice("raw", "renormalised", "one"), "scale": SCALE},
    "cosine": {"k": K, "gate": choice("softmax", "sigmoid"), "tau": number(above=0), "normalise_token": flag,
               "topk_norm": flag, "d_e": count(1), "identity": flag},
    "sigmoid": {"k": K, "weights": choice("raw", "renormalised"), "scale": SCALE, "rank": count(1)},
    "sparsemixer": {"jitter": number(above=0)},
    "hash": {},
    "base": {},
}
# The keys without a default.
REQUIRED = {"model": ("vocab_size", "d_model", "n_layers", "context_length"), "attention": ("n_heads",),
            "ffn": ("kind", "d_ff", "act"), "moe": ("n_experts", "router"), "shared": ("d_ff",), "norm": ("kind",), "entry": ("index",), "rule": ("match",),
            "softmax": ("k",), "threshold": ("t",), "cosine": ("tau",), "sigmoid": ("k",)}


def _check(where: str, found: Any, keys: dict[str, Check], kind: str = "", more: str = "") -> None:
    """Checks an object: no unknown key, none of REQUIRED[kind] missing, each value right."""
    if not isinstance(found, dict):
        raise BadConfig(f"{where}: expected an object, found {found!r}")
    if unknown := sorted(set(found) - set(keys) - {"comment"}):
        raise BadConfig(f"{where}: unknown {', '.join(unknown)}; expected some of {', '.join(keys) or 'none'}")
    for key in REQUIRED.get(kind, ()):
        if key not in found:
            raise BadConfig(f"{where}.{key}: expected {keys[key](None) or 'an object'}, found nothing{more}")
    for key, value in found.items():
        if key in keys and (wanted := keys[key](value)):
            raise BadConfig(f"{where}.{key}: expected {wanted}, found {value!r}")


def _list(where: str, found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise BadConfig(f"{where}: expected a list, found {found!r}")
    return found


def _at_most(where: str, found: int, most: int, what: str) -> None:
    if found > most:
        raise BadConfig(f"{where}: expected at most {what}, {most}, found {found}")


def router(where: str, found: Any, n_experts: int) -> None:
    """A whole router of n_experts experts."""
    kinds = choice(*ROUTERS)
    if not isinstance(found, dict) or kinds(found.get("kind")):
        kind = found.get("kind", "nothing") if isinstance(found, dict) else found
        raise BadConfig(f"{where}.kind: expected {kinds(None)}, found {kind}")
    kind = found["kind"]
    _check(where, found, {"kind": kinds, **ROUTERS[kind]}, kind, f"; a {kind} router has no default for it")
    k = found.get("k", 1)
    if not 1 <= k <= n_experts:
        raise BadConfig(f"{where}.k: expected 1..{n_experts}, found {k}")
    if kind == "threshold":
        least, most = found.get("min_k", 1), found.get("max_k", 0) or n_experts
        _at_most(f"{where}.max_k", most, n_experts, "n_experts")
        _at_most(f"{where}.min_k", least, most, "max_k or n_experts")
    if found.get("identity") and "d_e" in found:
        raise BadConfig(f"{where}.d_e: expected none beside identity, which keeps the width, found {found['d_e']}")
    if kind == "sparsemixer" and n_experts < 2:
        raise BadConfig(f"{where}: a sparsemixer router takes two experts, there is {n_experts}")


def _moe(where: str, found: Any, d: int) -> None:
    _check(where, found, MOE, "moe")
    heads = found.get("n_subheads", 1)
    if d % heads:
        raise BadConfig(f"{where}.n_subheads: expected a divisor of d_model, {d}, found {heads}")
    router(f"{where}.router", found["router"], found["n_experts"])
    if found.get("shared") is not None:
        _check(f"{where}.shared", found["shared"], SHARED, "shared")
    if found.get("capacity") is not None:
        _check(f"{where}.capacity", found["capacity"], CAPACITY)


def _ffn(where: str, found: Any, d: int) -> None:
    _check(where, found, FFN, "ffn")
    if found["kind"] == "moe":
        _moe(f"{where}.moe", found.get("moe"), d)


def _scaling(where: str, found: Any) -> None:
    kinds = choice(*SCALINGS)
    if not isinstance(found, dict) or kinds(found.get("kind")):
        raise BadConfig(f"{where}.kind: expected {kinds(None)}, found {found.get('kind', 'nothing') if isinstance(found, dict) else found!r}")
    for key in SCALINGS[found["kind"]]:
        if key not in found:
            raise BadConfig(f"{where}.{key}: expected a value, found nothing; {found['kind']} has no default for it")


def _attention(where: str, found: Any, d: int) -> None:
    _check(where, found, ATTENTION, "attention")
    heads, kv = found["n_heads"], found.get("n_kv_heads", found["n_heads"])
    if heads % kv:
        raise BadConfig(f"{where}.n_kv_heads: expected a divisor of n_heads, {heads}, found {kv}")
    if "head_dim" not in found and d % heads:
        raise BadConfig(f"{where}.n_heads: expected a divisor of d_model, {d}, where head_dim is not given, found {heads}")
    rope = found.get("rope") or {}
    _check(f"{where}.rope", rope, ROPE)
    head_dim = found.get("head_dim", d // heads)
    if rope.get("kind") != "none":
        dims = rope.get("dims", head_dim)
        _at_most(f"{where}.rope.dims", dims, head_dim, "head_dim")
        if dims % 2:
            raise BadConfig(f"{where}.rope.dims: expected an even number, found {dims}")
    if rope.get("scaling") is not None:
        _scaling(f"{where}.rope.scaling", rope["scaling"])


def model(found: Any) -> None:
    """The keys of the model itself; layer() checks a layer with its defaults merged in."""
    _check("config", found, MODEL, "model")
    blocks = {name: anything for name in ("attention", "cross_attention", "ffn")}
    _check("config.layer_defaults", found.get("layer_defaults", {}), blocks)
    for i, entry in enumerate(_list("config.layers", found.get("layers", []))):
        _check(f"config.layers[{i}]", entry, {"index": index, **blocks}, "entry")
        of = entry["index"]
        named = [of["from"]] if isinstance(of, dict) else of if isinstance(of, list) else [of]
        for layer_ in named:
            _at_most(f"config.layers[{i}].index", layer_, found["n_layers"] - 1, "n_layers - 1")
    _check("config.norm", found.get("norm", {"kind": "rms"}), NORM, "norm")
    head = found.get("head", {})
    _check("config.head", head, HEAD)
    if head.get("kind") in ("classes", "tags", "span") and not head.get("n_labels", 0):
        raise BadConfig(f"config.head.n_labels: expected 1 or more for {head['kind']}, found {head.get('n_labels', 'nothing')}")
    _at_most("config.n_encoder_layers", found.get("n_encoder_layers", 0), found["n_layers"], "n_layers")
    for key in ("bos_token_id", "pad_token_id", "mask_token_id", "start_token_id"):
        _at_most(f"config.{key}", found.get(key) or 0, found["vocab_size"] - 1, "vocab_size - 1")
    for token in found.get("eos_token_ids", []):
        _at_most("config.eos_token_ids", token, found["vocab_size"] - 1, "vocab_size - 1")
    if found.get("add_bos") and found.get("bos_token_id") is None:
        raise BadConfig("config.bos_token_id: expected an id, as add_bos is true, found nothing")
    rules = {"match": word, "weights": choice(*WEIGHTS), "activations": choice("f32", "a8", "a8_block")}
    for i, rule in enumerate(_list("config.precision", found.get("precision", []))):
        _check(f"config.precision[{i}]", rule, rules, "rule")


def layer(number_: int, found: Config, d: int) -> None:
    """A merged layer of a model of width d."""
    where = f"config: layer {number_}"
    _check(where, found, {"attention": anything, "cross_attention": anything, "ffn": anything})
    for name, check in (("attention", _attention), ("cross_attention", _attention), ("ffn", _ffn)):
        if name in found:
            check(f"{where}: {name}", found[name], d)
