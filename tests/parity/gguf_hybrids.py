# SPDX-License-Identifier: MIT
"""GGUF cases of models with a state per layer: gated delta rules, Mamba2, Kimi's rule."""

import json
import os

import torch
from safetensors.torch import load_file, save_file

from checkpoint import SIZES, make_transformers
from gguf_files import gguf_case
from hybrids import FALCON_H1, KIMI_LINEAR, NEMOTRON_H, make_falcon_h1_published, make_kimi_linear_published
from predictions import with_guesses

# Twice and four times as many value heads as key heads.
RULE = dict(num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
            linear_value_head_dim=8, linear_conv_kernel_dim=4)
# As much of a head is rotated as the axes share.
ON_AXES = dict(RULE, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25,
                                          mrope_section=[1, 1, 0]))
ON_AXES_OF_EQUAL_WIDTHS = dict(linear_key_head_dim=8, linear_value_head_dim=8, rope_parameters=ON_AXES["rope_parameters"])
FOUR_TIMES = dict(RULE, num_key_value_heads=1, linear_num_key_heads=3, linear_num_value_heads=12, linear_key_head_dim=6,
                  linear_value_head_dim=10, linear_conv_kernel_dim=3, tie_word_embeddings=True,
                  layer_types=["full_attention", "linear_attention", "full_attention", "linear_attention"])
EQUAL = dict(RULE, linear_num_value_heads=2)
EXPERTS = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=28)
# Rows and columns are whole blocks of 32 weights, also those of one head.
IN_BLOCKS = dict(hidden_size=64, intermediate_size=96, linear_value_head_dim=32)
EXPERTS_IN_BLOCKS = dict(EXPERTS, moe_intermediate_size=64, shared_expert_intermediate_size=32)
IN_BLOCKS_OF_256 = dict(EXPERTS, hidden_size=256, intermediate_size=512, moe_intermediate_size=256,
                        shared_expert_intermediate_size=256, linear_num_value_heads=8, linear_value_head_dim=64, head_dim=64)


def edit(folder, change):
    """Rewrites config.json."""
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    change(config)
    json.dump(config, open(path, "w"), indent=2)


def make_with_prediction(case, folder):
    """With a layer that predicts further tokens, as published checkpoints have it; llama.cpp's converter leaves it out."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    attends = [i for i, kind in enumerate(reference.model.config.layer_types) if kind == "full_attention"][0]
    prefix = f"model.layers.{attends}."
    d = case.config.get("hidden_size", SIZES["hidden_size"])
    more = {"mtp.layers.0." + name[len(prefix):]: t.clone() for name, t in tensors.items() if name.startswith(prefix)}
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        more[f"mtp.{name}.weight"] = torch.zeros(d).bfloat16()
    more["mtp.fc.weight"] = torch.ones(d, 2 * d).bfloat16()
    save_file({**tensors, **more}, path)
    return reference


def in_order(x, keys, width):
    """The rows of value heads that stand as in Qwen3.5's GGUF files: the first of each of the `keys` key heads first."""
    return x.reshape(-1, keys, width, *x.shape[1:]).transpose(0, 1).reshape(x.shape)


def restore_qwen(config, name, x):
    """The parameter of a Qwen3.5 checkpoint whose GGUF file has x."""
    if "norm" in name and "linear_attn" not in name:
        return x - 1
    if "linear_attn" not in name or name.endswith("linear_attn.norm.weight"):
        return x
    keys, width = config.linear_num_key_heads, config.linear_value_head_dim
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        first = 2 * keys * config.linear_key_head_dim
        return torch.cat([x[:first], in_order(x[first:], keys, width)])
    if name.endswith("out_proj.weight"):
        return in_order(x.T, keys, width).T
    x = in_order(x, keys, width if name.endswith("in_proj_z.weight") else 1)
    return torch.log(-x) if name.endswith("A_log") else x


def make_granite(case, folder):
    """With the layers' kinds as published files have them."""
    reference = make_transformers(case, folder)
    kinds = {"linear_attention": "mamba", "full_attention": "attention"}
    edit(folder, lambda config: config.update(layer_types=[kinds[kind] for kind in config["layer_types"]]))
    return reference


def make_nemotron_h(case, folder):
    """With the names and keys of published files, which have a biased network only without experts."""
    reference = make_transformers(case, folder)
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}

    def change(config):
        kinds = config.pop("layers_block_type")
        config.update(hybrid_override_pattern="".join(letters[kind] for kind in kinds), num_hidden_layers=len(kinds))
        if "moe" not in kinds:
            for key in ("num_experts_per_tok", "n_routed_experts", "moe_intermediate_size", "n_group", "topk_group"):
                config.pop(key, None)
            config["model_type"] = "published"  # or the converter reads them through transformers, which adds them again

    edit(folder, change)
    return reference


MAMBA = dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
             shared_intermediate_size=28, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=12,
             mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=16, tie_word_embeddings=True)
GRANITE = dict(MAMBA, embedding_multiplier=2.0, attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=6.0)
# Channels of Mamba2 are a multiple of 64, which llama.cpp's converter asks for.
NEMOTRON = dict(NEMOTRON_H, mamba_num_heads=8, mamba_head_dim=16)
NEMOTRON_MOE = dict(NEMOTRON, layers_block_type=["linear_attention", "moe", "full_attention", "moe", "linear_attention"])
NEMOTRON_DENSE = dict(NEMOTRON, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"])
FALCON = dict(FALCON_H1, head_dim=8)
KIMI = dict(KIMI_LINEAR, linear_num_heads=4)

# Small ones, which are kept.
TINY = dict(vocab_size=48, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=12)
TINY_EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=10)
TINY_RULE = {**RULE, **TINY, **TINY_EXPERTS, "head_dim": 8, "linear_num_value_heads": 6, "linear_key_head_dim": 4,
             "linear_value_head_dim": 6,
             "layer_types": ["linear_attention", "full_attention"]}
TINY_GRANITE = {**GRANITE, **TINY, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 10, "mamba_d_head": 8,
                "mamba_d_state": 6, "layer_types": ["linear_attention", "full_attention"]}
TINY_NEMOTRON = {**NEMOTRON_MOE, **TINY, "layers_block_type": ["linear_attention", "moe", "full_attention"], "num_hidden_layers": 3,
                 "head_dim": 8, "n_routed_experts": 4, "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 10}
TINY_FALCON = {**FALCON, **TINY, "mamba_d_ssm": 24, "mamba_d_head": 6, "mamba_d_state": 6}
TINY_KIMI = {**KIMI, **TINY, "num_key_value_heads": 2, "kv_lora_rank": 10, "num_local_experts": 4, "num_experts_per_tok": 2,
             "moe_intermediate_size": 8, "linear_num_heads": 2, "layer_types": ["linear_attention", "full_attention"]}

CASES = [
    gguf_case("qwen3_5_moe", "Qwen3_5MoeText", "bf16", dict(ON_AXES, **EXPERTS)),
    gguf_case("qwen3_5_moe_four_times", "Qwen3_5MoeText", "f32", {**FOUR_TIMES, **EXPERTS, **ON_AXES_OF_EQUAL_WIDTHS}),
    gguf_case("qwen3_5_moe_prediction", "Qwen3_5MoeText", "bf16", dict(RULE, **EXPERTS), inner=with_guesses(make_transformers), tolerance_kv16=1e-3),
    gguf_case("qwen3_5_moe_q8_0", "Qwen3_5MoeText", "q8_0", {**RULE, **EXPERTS_IN_BLOCKS, **IN_BLOCKS}, restore=restore_qwen),
    gguf_case("qwen3_5_moe_q4_k_m", "Qwen3_5MoeText", ["Q4_K", "Q6_K", "Q5_K", "Q4_K", "Q8_0"],
              {**RULE, **IN_BLOCKS_OF_256}, restore=restore_qwen),
    gguf_case("qwen3_5_moe_prediction_q4_k_m", "Qwen3_5MoeText", ["Q4_K", "Q6_K", "Q5_K", "Q4_K", "Q8_0"],
              {**RULE, **IN_BLOCKS_OF_256}, restore=restore_qwen, inner=with_guesses(make_transformers), tolerance_kv16=1e-3),
    gguf_case("qwen3_5_q4_0", "Qwen3_5Text", ["Q4_0", "Q8_0", "Q4_1"], {**RULE, **IN_BLOCKS}, restore=restore_qwen),
    gguf_case("qwen3_5", "Qwen3_5Text", "bf16", ON_AXES),
    gguf_case("qwen3_5_four_times", "Qwen3_5Text", "f16", FOUR_TIMES),
    gguf_case("qwen3_5_equal", "Qwen3_5Text", "bf16", EQUAL),
    gguf_case("qwen3_5_prediction", "Qwen3_5Text", "bf16", RULE, inner=with_guesses(make_transformers)),
    gguf_case("qwen3_next", "Qwen3Next", "bf16", dict(RULE, **EXPERTS)),
    gguf_case("qwen3_next_four_times", "Qwen3Next", "f32", dict(FOUR_TIMES, **EXPERTS)),
    gguf_case("qwen3_next_prediction", "Qwen3Next", "bf16", dict(RULE, **EXPERTS), inner=make_with_prediction),
    gguf_case("granitemoehybrid", "GraniteMoeHybrid", "bf16", dict(GRANITE, num_local_experts=6, num_experts_per_tok=2),
              inner=make_granite),
    gguf_case("granitemoehybrid_dense", "GraniteMoeHybrid", "f32", dict(
        GRANITE, num_local_experts=0, num_experts_per_tok=0, mamba_n_groups=2, mamba_d_state=7, mamba_d_conv=3,
        tie_word_embeddings=False), inner=make_granite),
    gguf_case("nemotron_h_moe", "NemotronH", "bf16", NEMOTRON_MOE, inner=make_nemotron_h),
    gguf_case("nemotron_h", "NemotronH", "bf16", NEMOTRON_DENSE, inner=make_nemotron_h),
    gguf_case("falcon_h1", "FalconH1", "f32", FALCON, inner=make_falcon_h1_published),
    gguf_case("falcon_h1_norm", "FalconH1", "f32", dict(FALCON, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=2,
                                                        mamba_d_conv=3), inner=make_falcon_h1_published),
    gguf_case("kimi_linear", "KimiLinear", "bf16", KIMI, inner=make_kimi_linear_published),
    gguf_case("qwen3_5_moe_small", "Qwen3_5MoeText", "bf16", TINY_RULE, golden=True),
    gguf_case("qwen3_next_small", "Qwen3Next", "bf16", TINY_RULE, golden=True),
    gguf_case("granitemoehybrid_small", "GraniteMoeHybrid", "bf16", TINY_GRANITE, inner=make_granite, golden=True),
    gguf_case("nemotron_h_moe_small", "NemotronH", "bf16", TINY_NEMOTRON, inner=make_nemotron_h, golden=True),
    gguf_case("falcon_h1_small", "FalconH1", "f32", TINY_FALCON, inner=make_falcon_h1_published, golden=True),
    gguf_case("kimi_linear_small", "KimiLinear", "bf16", TINY_KIMI, inner=make_kimi_linear_published, golden=True),
]
