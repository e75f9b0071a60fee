# SPDX-License-Identifier: MIT
"""Cases of models whose layers differ in kind: Mamba2, attention or a network each, or two of them side by side."""

import json
import os

import torch
from safetensors.torch import load_file, save_file

import predictions
from checkpoint import ODD, YARN, Case, make_transformers

NEMOTRON_H = dict(layers_block_type=["linear_attention", "moe", "full_attention", "mlp", "linear_attention"], head_dim=16,
                  mamba_num_heads=4, mamba_head_dim=12, n_groups=2, ssm_state_size=10, conv_kernel=4, chunk_size=16,
                  n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, routed_scaling_factor=2.5,
                  moe_shared_expert_intermediate_size=28)

FALCON_H1 = dict(mamba_d_ssm=48, mamba_n_heads=4, mamba_d_head=12, mamba_n_groups=1, mamba_d_state=10, mamba_chunk_size=16,
                 embedding_multiplier=2.5, lm_head_multiplier=0.3, attention_in_multiplier=0.7, attention_out_multiplier=0.6,
                 key_multiplier=0.4, ssm_in_multiplier=1.25, ssm_out_multiplier=0.5, mlp_multipliers=[0.8, 0.35],
                 ssm_multipliers=[0.35, 0.25, 0.7, 0.5, 0.6], rope_parameters=dict(rope_type="default", rope_theta=1e11))

# The layers' attention has as many heads of keys as of queries.
KIMI_LINEAR = dict(num_hidden_layers=4, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
                   num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
                   num_local_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=12,
                   routed_scaling_factor=2.446, linear_head_dim=8, linear_num_heads=5, linear_conv_kernel_dim=4)

LING_3 = dict(num_hidden_layers=4, layer_group_size=3, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=8,
              qk_rope_head_dim=4, v_head_dim=6, num_local_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
              n_shared_experts=1, first_k_dense_replace=1, moe_intermediate_size=12, head_dim=8)

MINIMAX = dict(num_hidden_layers=4, layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
               num_local_experts=6, num_experts_per_tok=2, head_dim=8, block_size=16, full_attn_alpha_factor=3.5565588200778455,
               linear_attn_alpha_factor=3.5565588200778455, mlp_alpha_factor=3.5565588200778455)


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


def make_kimi_linear_published(case, folder):
    """With the keys and the names of published files."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    types = config.pop("layer_types")
    config["linear_attn_config"] = dict(
        full_attn_layers=[i + 1 for i, kind in enumerate(types) if kind == "full_attention"],
        kda_layers=[i + 1 for i, kind in enumerate(types) if kind == "linear_attention"], head_dim=config.pop("linear_head_dim"),
        num_heads=config.pop("linear_num_heads"), short_conv_kernel_size=config.pop("linear_conv_kernel_dim"))
    for key in ("mlp_layer_types", "qk_head_dim"):
        config.pop(key)
    config.update(first_k_dense_replace=1, moe_layer_freq=1, mla_use_nope=True, moe_router_activation_func="sigmoid",
                  num_nextn_predict_layers=0, rope_scaling=None, rope_theta=10000.0, use_grouped_topk=True, head_dim=72)
    json.dump(config, open(path, "w"), indent=2)
    path = os.path.join(folder, "model.safetensors")
    dense = "layers.0.block_sparse_moe."
    save_file({name.replace(dense, "layers.0.mlp."): t for name, t in load_file(path).items()}, path)
    return reference


def make_ling_3_published(case, folder):
    """With the keys and the names of published files, and a layer that predicts further tokens."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    for key in ("layer_types", "mlp_layer_types", "linear_conv_kernel_dim", "linear_num_heads", "qk_head_dim"):
        config.pop(key)
    for saved, published in [("model_max_length", "max_position_embeddings"), ("moe_renormalize", "norm_topk_prob"),
                             ("num_expert_group", "n_group"), ("num_experts_per_token", "num_experts_per_tok"),
                             ("linear_head_dim", "head_dim")]:
        config[published] = config.pop(saved)
    config.update(rope_theta=config.pop("rope_parameters")["rope_theta"], rope_scaling=None, rope_interleave=True, rotary_dim=4,
                  architectures=["BailingMoeV3ForCausalLM"], no_kda_lora=True, use_kda_lora=False, linear_attention="kda",
                  linear_silu=True, use_qk_norm=True, gated_attention_proj_granularity_type="head_wise", router_dtype="fp32",
                  topk_method="noaux_tc", score_function="sigmoid", scoring_func="sigmoid", moe_router_enable_expert_bias=True,
                  moe_shared_expert_intermediate_size=12, group_norm_size=1, use_bias=False, use_qkv_bias=False,
                  use_mla_nope=False, use_nGPT=False, up_proj_norm=False, value_norm=False, scale_router_input=False,
                  embedding_dropout=0.0, output_dropout=0.0, partial_rotary_factor=0.5, num_kv_heads_for_linear_attn=0,
                  max_window_layers=20, mtp_use_kda=False, seq_aux=True, expert_swiglu_limit_list=[0, 0, 0, 0.0],
                  share_expert_swiglu_limit_list=None)
    json.dump(config, open(path, "w"), indent=2)
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    rules = [name.removesuffix("A_log") for name in tensors if name.endswith("A_log")]
    for rule in rules:
        tensors[rule + "o_proj.weight"] = tensors.pop(rule + "dense.weight")
    save_file(tensors, path)
    return predictions.add(case, folder, reference)


def make_minimax_published(case, folder):
    """With the keys of published files, which rotate half of each head. The reference rotates the same pairs of numbers, which
    are further apart, and turns the others by an angle of 0."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    width, theta = config["head_dim"], config.pop("rope_parameters")["rope_theta"]
    rotary = reference.model.model.rotary_emb
    rotary.inv_freq = torch.tensor([theta ** (-4 * i / width) if i < width // 4 else 0.0 for i in range(width // 2)])
    types = config.pop("layer_types")
    config.update(model_type="minimax_text_01", architectures=["MiniMaxText01ForCausalLM"], postnorm=True, rope_theta=theta,
                  rotary_dim=width // 2, attn_type_list=[int(kind == "full_attention") for kind in types],
                  shared_intermediate_size=0, shared_moe_mode="sigmoid")
    for saved, published in [("full_attn", "full_attention"), ("linear_attn", "linear_attention"), ("mlp", "mlp")]:
        for factor in "alpha", "beta":
            config[f"layernorm_{published}_{factor}"] = config.pop(f"{saved}_{factor}_factor")
    json.dump(config, open(path, "w"), indent=2)
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    a, b = range(width // 4), range(width // 4, width // 2)
    order = [*a, *(i + width // 2 for i in a), *b, *(i + width // 2 for i in b)]
    for name, tensor in tensors.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = tensor.reshape(-1, width, tensor.shape[1])
            tensors[name] = heads[:, order].reshape(tensor.shape).contiguous()
    save_file({n: t for n, t in tensors.items() if not n.endswith(("decay", "slope_rate"))}, path)
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
    Case("kimi_linear", "KimiLinear", KIMI_LINEAR, golden=True),
    Case("kimi_linear_published", "KimiLinear", KIMI_LINEAR, make=make_kimi_linear_published),
    Case("kimi_linear_odd", "KimiLinear", dict(
        KIMI_LINEAR, **dict(ODD, num_key_value_heads=6), layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"],
        mlp_layer_types=["sparse", "dense", "sparse", "sparse"], q_lora_rank=20, n_group=4, topk_group=2, norm_topk_prob=False,
        n_shared_experts=2, linear_head_dim=7, linear_num_heads=3, linear_conv_kernel_dim=3, rms_norm_eps=1e-3)),
    Case("bailing_hybrid", "BailingHybrid", LING_3, golden=True),
    Case("bailing_hybrid_mtp", "BailingHybrid", LING_3, make=predictions.with_guesses(make_transformers), golden=True),
    Case("bailing_hybrid_published", "BailingHybrid", dict(LING_3, layer_group_size=2), make=make_ling_3_published, seed=4),
    Case("bailing_hybrid_odd", "BailingHybrid", dict(
        LING_3, **dict(ODD, num_key_value_heads=6),
        layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"],
        mlp_layer_types=["sparse", "dense", "sparse", "sparse"], q_lora_rank=20, n_group=2, topk_group=1, norm_topk_prob=False,
        n_shared_experts=2, head_dim=7, short_conv_kernel_size=3, kda_safe_gate=False, rms_norm_eps=1e-3,
        rope_parameters=YARN)),
    Case("bailing_hybrid_bound", "BailingHybrid", dict(LING_3, kda_lower_bound=-0.7, head_dim=20, q_lora_rank=12)),
    Case("minimax", "MiniMax", MINIMAX, golden=True),
    Case("minimax_published", "MiniMax", MINIMAX, make=make_minimax_published),
    Case("minimax_odd", "MiniMax", dict(
        MINIMAX, **dict(ODD, intermediate_size=44),
        layer_types=["full_attention", "linear_attention", "full_attention", "linear_attention"], num_local_experts=5,
        num_experts_per_tok=3, head_dim=10, full_attn_alpha_factor=2, linear_attn_alpha_factor=2, mlp_alpha_factor=2,
        full_attn_beta_factor=0.7, linear_attn_beta_factor=0.7, mlp_beta_factor=0.7, sliding_window=9, rms_norm_eps=1e-3,
        rope_parameters=YARN, tie_word_embeddings=True)),
]
