# SPDX-License-Identifier: MIT
"""Cases of models whose layers differ in kind: Mamba2, attention or a network each, or two of them side by side."""

import json
import os

from safetensors.torch import load_file, save_file

from checkpoint import ODD, Case, make_transformers

NEMOTRON_H = dict(layers_block_type=["linear_attention", "moe", "full_attention", "mlp", "linear_attention"], head_dim=16,
                  mamba_num_heads=4, mamba_head_dim=12, n_groups=2, ssm_state_size=10, conv_kernel=4, chunk_size=16,
                  n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, routed_scaling_factor=2.5,
                  moe_shared_expert_intermediate_size=28)

FALCON_H1 = dict(mamba_d_ssm=48, mamba_n_heads=4, mamba_d_head=12, mamba_n_groups=1, mamba_d_state=10, mamba_chunk_size=16,
                 embedding_multiplier=2.5, lm_head_multiplier=0.3, attention_in_multiplier=0.7, attention_out_multiplier=0.6,
                 key_multiplier=0.4, ssm_in_multiplier=1.25, ssm_out_multiplier=0.5, mlp_multipliers=[0.8, 0.35],
                 ssm_multipliers=[0.35, 0.25, 0.7, 0.5, 0.6], rope_parameters=dict(rope_type="default", rope_theta=1e11))


def make_nemotron_h_published(case, folder):
    """With the keys of published files: the blocks as letters, Python's Infinity, and a layer that predicts further tokens."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
    config["hybrid_override_pattern"] = "".join(letters[kind] for kind in config.pop("layers_block_type"))
    config.update(num_hidden_layers=len(config["hybrid_override_pattern"]), norm_eps=config["layer_norm_epsilon"],
                  rope_theta=10000, partial_rotary_factor=1.0, time_step_limit=[0.0, float("inf")],
                  num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E")
    config.pop("mtp_layers_block_type")
    json.dump(config, open(path, "w"), indent=2)
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    tensors["mtp.layers.0.eh_proj.weight"] = tensors["lm_head.weight"].clone()
    save_file(tensors, path)
    return reference


def make_falcon_h1_published(case, folder):
    """With the keys of published files."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config.pop("time_step_limit")
    config.update(rope_theta=config.pop("rope_parameters")["rope_theta"], rope_scaling=None, attn_layer_indices=None,
                  expansion_factor=2, mlp_expansion_factor=8, mamba_use_mlp=True, time_step_floor=0.0001, time_step_max=0.1,
                  time_step_min=0.001, time_step_rank="auto", sliding_window=None)
    json.dump(config, open(path, "w"), indent=2)
    return reference


CASES = [
    Case("nemotron_h", "NemotronH", NEMOTRON_H, golden=True),
    Case("nemotron_h_published", "NemotronH", NEMOTRON_H, make=make_nemotron_h_published),
    Case("nemotron_h_odd", "NemotronH", dict(
        NEMOTRON_H, **ODD, layers_block_type=["mlp", "linear_attention", "moe", "full_attention"], mamba_num_heads=9,
        mamba_head_dim=7, n_groups=3, ssm_state_size=5, conv_kernel=3, use_conv_bias=False, use_bias=True, mlp_bias=True,
        n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, norm_topk_prob=False,
        layer_norm_epsilon=1e-3)),
    Case("nemotron_h_dense", "NemotronH", dict(NEMOTRON_H, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp"]),
         layout="fused"),
    Case("falcon_h1", "FalconH1", FALCON_H1, golden=True),
    Case("falcon_h1_published", "FalconH1", FALCON_H1, make=make_falcon_h1_published),
    Case("falcon_h1_odd", "FalconH1", dict(
        FALCON_H1, **ODD, mamba_d_ssm=63, mamba_n_heads=9, mamba_d_head=7, mamba_n_groups=3, mamba_d_state=5, mamba_d_conv=3,
        mamba_conv_bias=False, mamba_proj_bias=True, projectors_bias=True, attention_bias=True, mlp_bias=True,
        mamba_rms_norm=True, mamba_norm_before_gate=False, tie_word_embeddings=True), layout="fused"),
]
