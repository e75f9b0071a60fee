# SPDX-License-Identifier: MIT
"""The research layout's config.json: defaults, deep merge per layer, precision by role.

A configuration is the plain dictionary of config.json, without classes around it, so that the model
that is trained is described by the file on disk. formats/README.md documents the layout, with the required keys
and the defaults, which are the same here.
"""

from __future__ import annotations

import copy
from fnmatch import fnmatchcase
from typing import Any

import check_config

Config = dict[str, Any]

NORMS: Config = {"norm": True, "out_norm": False, "post_norm": False}
ATTENTION: Config = NORMS | {
    "window": 0,
    "causal": True,
    "multiplier": None,
    "rope": {"kind": "half", "theta": 10000.0, "scaling": None},
    "qk_norm": "none",
    "sub_norm": False,
    "sinks": False,
}
CROSS_ATTENTION: Config = ATTENTION | {
    "causal": False,
    "rope": {"kind": "none", "theta": 10000.0, "scaling": None},
}
FFN: Config = NORMS | {
    "gated": False,
    "alpha": 1.0,
    "limit": 0,
    "up_offset": 0,
    "sub_norm": False,
    "moe": None,
}
MOE: Config = {
    "n_subheads": 1,
    "mh": False,
    "head": None,  # None: present with several sub-heads or "mh"
    "merge": None,
    "n_sublayers": 0,
    "shared": None,
    "capacity": {"gamma": 0, "min_capacity": 0, "order": "priority"},
}
ROUTERS: dict[str, Config] = {
    "softmax": {"weights": "raw", "scale": 1.0},
    "threshold": {"weights": "raw", "scale": 1.0, "min_k": 1, "max_k": 0},
    "cosine": {"k": 1, "gate": "softmax", "normalise_token": True},  # topk_norm follows the gate and k
    "sigmoid": {"weights": "raw", "scale": 1.0},
    "sparsemixer": {"jitter": 0.01},
    "hash": {},
    "base": {},
}
MODEL: Config = {
    "model_type": "moe_research",
    "layout_version": 1,
    "name": "model",
    "norm": {"kind": "rms", "eps": 1e-5},
    "positions": "rope",
    "tie_embeddings": True,
    "embedding_norm": False,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "logit_multiplier": 1.0,
    "bos_token_id": None,
    "eos_token_ids": [],
    "pad_token_id": None,
    "add_bos": False,
    "layer_defaults": {},
    "layers": [],
    "precision": [{"match": "*", "weights": "auto", "activations": "f32"}],
    "tokenizer": None,
}


def merge(base: Config, over: Config) -> Config:
    """`base` patched with `over`: objects merge deeply, null removes a key."""
    out = copy.deepcopy(base)
    for key, value in over.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merge(out[key], value)
        else:
            out[key] = copy.deepcopy(value)
    return out


def _covers(index: Any, layer: int) -> bool:
    if isinstance(index, dict):
        start, step = index.get("from", 0), index.get("step", 1)
        return layer >= start and (layer - start) % step == 0
    return layer in index if isinstance(index, list) else layer == index


def feed_forwards(config: Config) -> list[Config]:
    """Every `ffn` object of a configuration, without defaults."""
    found = [config.get("layer_defaults", {}), *config.get("layers", [])]
    return [entry["ffn"] for entry in found if entry.get("ffn")]


def _attention(defaults: Config, given: Config, d: int) -> Config:
    """An attention block of a model of width d with its defaults, some of which depend on others."""
    out = defaults | {"n_kv_heads": given["n_heads"], "head_dim": d // given["n_heads"]} | given
    out["rope"] = {"dims": out["head_dim"]} | defaults["rope"] | (given.get("rope") or {})
    return out


def merged_layer(config: Config, layer: int) -> Config:
    """The blocks of layer number `layer` as the configuration gives them, without the defaults of formats/README.md."""
    own: Config = config.get("layer_defaults", {})
    for entry in config.get("layers", []):
        if _covers(entry["index"], layer):
            own = merge(own, {k: v for k, v in entry.items() if k not in ("index", "comment")})
    return own


def layer_config(config: Config, layer: int) -> Config:
    """The configuration of layer number `layer`, with the defaults filled in. A missing block has no
    key."""
    own, d = merged_layer(config, layer), config["d_model"]
    out: Config = {}
    for name, defaults in (("attention", ATTENTION), ("cross_attention", CROSS_ATTENTION)):
        if name in own:
            out[name] = _attention(defaults, own[name], d)
    if "ffn" in own:
        ffn = out["ffn"] = FFN | own["ffn"]
        if ffn["kind"] == "moe":
            moe = ffn["moe"] = MOE | ffn["moe"]
            moe["router"] = ROUTERS[moe["router"]["kind"]] | moe["router"]
            moe["capacity"] = MOE["capacity"] | (moe["capacity"] or {})
    return out


def complete(config: Config) -> Config:
    """The configuration with the model's own defaults filled in, checked whole: BadConfig names the first fault."""
    check_config.model(config)
    out = MODEL | config
    out["norm"] = MODEL["norm"] | out["norm"]
    for layer in range(out["n_layers"]):
        check_config.layer(layer, merged_layer(out, layer), out["d_model"])
    return out


def n_encoder_layers(config: Config) -> int:
    """The number of layers that read the source of an encoder-decoder; 0 for other models."""
    return config.get("n_encoder_layers", 0)


def kind(config: Config) -> str:
    """"decoder", "encoder" (a token sees the whole text) or "encoder-decoder"."""
    if n_encoder_layers(config):
        return "encoder-decoder"
    layers = (merged_layer(config, i).get("attention", {}) for i in range(config["n_layers"]))
    return "decoder" if all(a.get("causal", True) for a in layers) else "encoder"


def need_decoder(config: Config) -> None:
    """For programs that continue a text: refuses other models than decoders."""
    if (found := kind(config)) != "decoder":
        raise SystemExit(f"config: expected a decoder, found an {found}; runner.py trains and measures rows of that kind")


def head(config: Config) -> Config:
    """The head of the model, with the defaults filled in."""
    return {"kind": "tokens", "n_labels": 0, "dense": False, "norm": False, "act": "gelu"} | config.get("head", {})


def precision_of(config: Config, role: str) -> tuple[str, str]:
    """(weights, activations) of a matrix, named without ".weight"; the last match wins."""
    weights, activations = "auto", "f32"
    for rule in config["precision"]:
        if fnmatchcase(role, rule["match"]):
            weights = rule.get("weights", weights)
            activations = rule.get("activations", activations)
    return weights, activations
