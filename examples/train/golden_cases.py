# SPDX-License-Identifier: MIT
"""The tiny models of tests/data/pytorch: one per router kind, layer kind and precision.

A case is (name, config patching BASE, roles with a bias, dtype of the file). Sizes are deliberately odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Config = dict[str, Any]


class Case(NamedTuple):
    name: str
    config: Config
    biases: Sequence[str] = ()
    dtype: str = "bfloat16"


BASE: Config = {
    "vocab_size": 37,
    "d_model": 36,
    "n_layers": 2,
    "context_length": 64,
    "precision": [{"match": "*", "weights": "f32", "activations": "f32"}],
}
ALL = ["*.q", "*.k", "*.v", "*.o", "*.gate", "*.up", "*.down", "*.head", "*.merge"]
NORMS = ["*attention_norm", "*ffn_norm", "final_norm"]


def attention(
    heads: int = 2, kv: int = 1, dim: int = 12, rope: Config | None = None, **more: Any
) -> Config:
    return {
        "n_heads": heads,
        "n_kv_heads": kv,
        "head_dim": dim,
        "rope": {"kind": "half", "dims": dim, "theta": 10000.0} | (rope or {}),
    } | more


def moe(
    router: Config,
    n: int = 4,
    d_ff: int = 12,
    act: str = "silu",
    gated: bool = True,
    ffn: Config | None = None,
    **more: Any,
) -> Config:
    return {
        "kind": "moe",
        "d_ff": d_ff,
        "act": act,
        "gated": gated,
        "moe": {"n_experts": n, "router": router} | more,
    } | (ffn or {})


def dense(d_ff: int = 36, act: str = "silu", gated: bool = True, **more: Any) -> Config:
    return {"kind": "dense", "d_ff": d_ff, "act": act, "gated": gated} | more


def model(att: Config | None = None, ffn: Config | None = None, **more: Any) -> Config:
    return (
        BASE | {"layer_defaults": {"attention": att or attention(), "ffn": ffn or dense()}} | more
    )


def topk(k: int = 2, weights: str = "raw", scale: float = 1.0) -> Config:
    return {"kind": "softmax", "k": k, "weights": weights, "scale": scale}


def cosine(**more: Any) -> Config:
    return {
        "kind": "cosine",
        "k": 1,
        "gate": "softmax",
        "tau": 0.2,
        "d_e": 8,
        "normalise_token": True,
        "topk_norm": False,
    } | more


def precision(weights: str, activations: str) -> list[Config]:
    """This precision for every matrix of the layers; embedding, head and routers stay float."""
    return [
        {"match": "*", "weights": "f32", "activations": "f32"},
        {"match": "layers.*", "weights": weights, "activations": activations},
        {"match": "*.router*", "weights": "f32", "activations": "f32"},
    ]


LAYER = {"norm": {"kind": "layer", "eps": 1e-5}}
UNTIED = {"tie_embeddings": False}
BITNET = moe(topk(), 4, 20, "relu2", ffn={"sub_norm": True})
MH2 = moe(topk(2), 6, 12, n_subheads=2)

ROUTERS = [
    Case("softmax_raw", model(ffn=moe(topk()))),
    Case(
        "softmax_renormalised",
        model(attention(3, 1, 16), moe(topk(3, "renormalised"), 5), **UNTIED),
        ["*.q", "*.k", "*.v"],
        "float16",
    ),
    Case(
        "softmax_chosen",
        model(
            attention(
                4,
                2,
                12,
                {
                    "theta": 150000.0,
                    "scaling": {
                        "kind": "yarn",
                        "factor": 32.0,
                        "original_context": 16,
                        "beta_fast": 4.0,
                        "beta_slow": 1.0,
                        "truncate": False,
                    },
                },
                sinks=True,
            ),
            moe(topk(2, "chosen", 1.5), ffn={"alpha": 1.702, "limit": 7.0, "up_offset": 1.0}),
            layers=[{"index": {"from": 0, "step": 2}, "attention": {"window": 5}}],
            **UNTIED,
        ),
        [*ALL, "*.router"],
        "float32",
    ),
    Case(
        "threshold",
        model(ffn=moe({"kind": "threshold", "t": 0.6}, 8, 12, "gelu_tanh", False), **LAYER),
        [*ALL, *NORMS],
    ),
    Case(
        "threshold_bounds",
        model(
            ffn=moe(
                {
                    "kind": "threshold",
                    "t": 0.5,
                    "min_k": 2,
                    "max_k": 3,
                    "weights": "renormalised",
                    "scale": 1.25,
                },
                7,
            )
        ),
    ),
    Case("cosine_softmax_top1", model(ffn=moe(cosine(), 5)), dtype="float16"),
    Case("cosine_softmax_top2", model(ffn=moe(cosine(k=2, topk_norm=True, normalise_token=False)))),
    Case(
        "cosine_sigmoid_top2",
        model(ffn=moe(cosine(k=2, gate="sigmoid"), act="gelu", gated=False)),
        ["*.router.proj"],
    ),
    Case(
        "sigmoid_selection_bias",
        model(ffn=moe({"kind": "sigmoid", "k": 3, "weights": "renormalised", "scale": 2.5}, 8)),
        ["*.selection_bias"],
    ),
    Case(
        "sigmoid_raw",
        model(ffn=moe({"kind": "sigmoid", "k": 2, "weights": "raw", "scale": 1.0}, 5)),
    ),
    Case(
        "sparsemixer",
        model(
            attention(
                rope={
                    "scaling": {
                        "kind": "longrope",
                        "original_context": 16,
                        "short_factor": [1.0] * 6,
                        "long_factor": [1.0, 1.25, 1.5, 2.0, 3.0, 4.0],
                    }
                }
            ),
            moe({"kind": "sparsemixer", "jitter": 0.1}),
            **LAYER,
            **UNTIED,
        ),
        [*ALL, *NORMS, "head"],
    ),
    Case("hash", model(ffn=moe({"kind": "hash"}, 5))),
    Case("base", model(ffn=moe({"kind": "base"}, 5))),
    Case(
        "capacity_priority",
        model(
            ffn=moe(
                {"kind": "threshold", "t": 0.7},
                5,
                capacity={"gamma": 1.2, "min_capacity": 2, "order": "priority"},
            )
        ),
    ),
    Case(
        "capacity_arrival",
        model(
            ffn=moe(
                topk(),
                5,
                n_subheads=2,
                capacity={"gamma": 1.0, "min_capacity": 0, "order": "arrival"},
            )
        ),
    ),
]

LAYERS = [
    Case("mh_moe_2_heads", model(ffn=MH2), ALL),
    Case(
        "mh_moe_3_heads",
        model(
            attention(3, 3, 16),
            moe(topk(3), 7, 12, n_subheads=3, shared={"d_ff": 28, "gated": False}),
        ),
    ),
    Case(
        "mh_moe_1_head",
        model(ffn=moe(topk(1), 5, 12, "relu", False, mh=True)),
        ["*.head", "*.merge"],
    ),
    Case(
        "mh_moe_head_only",
        model(ffn=moe(topk(2), 6, 12, n_subheads=2, merge=False)),
        ["*.head"],
    ),
    Case(
        "mh_moe_merge_only",
        model(ffn=moe({"kind": "threshold", "t": 0.6}, 6, 12, n_subheads=2, head=False)),
        ["*.merge"],
    ),
    Case(
        "mh_moe_neither",
        model(ffn=moe(topk(2), 6, 12, n_subheads=2, head=False, merge=False)),
    ),
    Case("shared_ungated", model(ffn=moe(topk(), 5, shared={"d_ff": 36, "gated": False}))),
    Case(
        "shared_gated",
        model(ffn=moe(topk(), 5, shared={"d_ff": 28, "gated": True}), **UNTIED),
        ["*.q", "*.k", "*.v"],
    ),
    Case(
        "xmoe_stack",
        model(
            attention(rope={"kind": "none"}),
            moe(cosine(k=1), 3, 12, "relu", False, n_sublayers=3),
            positions="learned",
            **LAYER,
        ),
        [*ALL, *NORMS, "*.norm"],
    ),
    Case("xmoe_stack_gated", model(ffn=moe(topk(), 3, 12, n_sublayers=2))),
    Case(
        "every_second_layer",
        model(ffn=dense(), n_layers=4, layers=[{"index": [1, 3], "ffn": moe(topk(), 4, 12)}]),
    ),
    Case(
        "dense_gated",
        model(
            ffn=dense(),
            n_layers=5,
            layers=[
                {"index": i, "ffn": dense(28 + 4 * i, act)}
                for i, act in enumerate(("silu", "relu", "gelu", "gelu_tanh", "relu2"))
            ],
        ),
    ),
    Case(
        "dense_plain",
        model(
            ffn=dense(),
            n_layers=5,
            layers=[
                {"index": i, "ffn": dense(28 + 4 * i, act, False)}
                for i, act in enumerate(("silu", "relu", "gelu", "gelu_tanh", "relu2"))
            ],
        ),
    ),
    Case(
        "layer_norm_learned",
        model(
            attention(2, 2, 24, {"kind": "none"}),
            dense(44, "gelu_tanh", False),
            positions="learned",
            embedding_norm=True,
            **LAYER,
        ),
        [*ALL, *NORMS, "embedding_norm"],
    ),
    Case(
        "out_norms",  # OLMo 2's, and sandwich norms
        model(
            attention(norm=False, out_norm=True, qk_norm="whole"),
            dense(norm=False, out_norm=True),
            n_layers=3,
            layers=[
                {"index": 1, "attention": {"norm": True}, "ffn": {"norm": True}},
                {"index": 2, "ffn": moe(topk(), 4, shared={"d_ff": 20, "gated": True})},
            ],
            residual_multiplier=0.7,
        ),
    ),
    Case(
        "post_norms",  # the original Transformer's
        model(
            attention(2, 2, 24, {"kind": "none"}, norm=False, post_norm=True),
            dense(44, "gelu", False, norm=False, post_norm=True),
            layers=[{"index": 1, "ffn": moe(topk(), 4) | {"out_norm": True}}],
            positions="learned",
            final_norm=False,
            **LAYER,
        ),
        [*ALL, *NORMS, "*_out_norm", "*_post_norm"],
    ),
    Case(
        "blocks_alone",
        model(
            n_layers=4,
            layers=[
                {"index": 0, "ffn": None},
                {"index": 1, "attention": None, "ffn": moe(topk(), 4) | {"norm": False}},
                {"index": 2, "attention": None},
            ],
        ),
    ),
    Case("no_positions", model(attention(2, 1, 24), positions="none")),
    Case(
        "rope_interleaved_partial",
        model(
            attention(
                2,
                1,
                24,
                {"kind": "interleaved", "dims": 16, "scaling": {"kind": "linear", "factor": 2.0}},
            ),
            n_layers=4,
            layers=[
                {"index": [0, 1, 2], "attention": {"window": 7}},
                {"index": 3, "attention": {"rope": {"kind": "none"}}},
            ],
        ),
    ),
    Case(
        "rope_llama3",
        model(
            attention(
                2,
                2,
                24,
                {
                    "theta": 500000.0,
                    "scaling": {
                        "kind": "llama3",
                        "factor": 8.0,
                        "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0,
                        "original_context": 32,
                    },
                },
                qk_norm="head",
            ),
            **UNTIED,
        ),
    ),
    Case(
        "rope_yarn_whole_norm",
        model(
            attention(
                3,
                1,
                16,
                {
                    "scaling": {
                        "kind": "yarn",
                        "factor": 4.0,
                        "original_context": 64,
                        "beta_fast": 32.0,
                        "beta_slow": 1.0,
                    }
                },
                qk_norm="whole",
            )
        ),
    ),
    Case(
        "rope_longrope_short",
        model(
            attention(
                rope={
                    "scaling": {
                        "kind": "longrope",
                        "original_context": 64,
                        "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7, 2.0],
                        "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
                        "attention_factor": 1.1,
                    }
                }
            )
        ),
    ),
    Case(
        "sub_norms",
        model(
            attention(sub_norm=True),
            dense(36, "relu2", sub_norm=True),
            layers=[
                {
                    "index": 1,
                    "ffn": moe(
                        topk(),
                        4,
                        20,
                        "relu2",
                        ffn={"sub_norm": True},
                        shared={"d_ff": 20, "gated": False},
                    ),
                }
            ],
        ),
    ),
    Case(
        "multipliers",
        model(
            attention(multiplier=0.1),
            moe(topk(2, "chosen"), 5),
            embedding_multiplier=6.0,
            residual_multiplier=0.22,
            logit_multiplier=0.25,
        ),
    ),
]

PRECISIONS = [
    Case(
        "ternary_a8", model(attention(sub_norm=True), BITNET, precision=precision("ternary2", "a8"))
    ),
    Case(
        "ternary_mh_moe_a8",
        model(ffn=MH2, precision=precision("ternary2", "a8")),
        ["*.head", "*.merge"],
    ),
    Case("ternary_f32", model(ffn=moe(topk(), 4), precision=precision("ternary3", "f32"))),
    Case(
        "ternary_a8_block",
        model(attention(2, 1), dense(260), precision=precision("ternary2", "a8_block")),
    ),
    Case("int8_a8", model(ffn=moe(topk(), 4), precision=precision("int8", "a8"))),
    Case(
        "int8_a8_block",
        model(attention(2, 1), dense(260, "gelu", False), precision=precision("int8", "a8_block")),
        ALL,
    ),
    Case("int8_f32", model(ffn=moe(topk(), 4), precision=precision("int8", "f32"))),
    Case(
        "bytes",
        model(
            ffn=moe(topk(), 4, 12),
            vocab_size=258,
            d_model=24,
            tokenizer="bytes",
            bos_token_id=256,
            eos_token_ids=[257],
            add_bos=True,
        ),
    ),
]
CASES = ROUTERS + LAYERS + PRECISIONS
