# SPDX-License-Identifier: MIT
"""GGUF cases of architectures that gguf's released package does not have yet: Ling 3, MiniMax-Text-01. Names, keys and values
are those that llama.cpp's converter writes (conversion/bailing_moe_v3.py, conversion/minimax.py)."""

import json
import os
import re

import numpy as np
from safetensors.torch import load_file

from checkpoint import Case
from gguf_files import write_all
from hybrids import LING_3, MINIMAX, make_ling_3_published, make_minimax_published

MODEL = {"model.word_embeddings.weight": "token_embd.weight", "model.embed_tokens.weight": "token_embd.weight",
         "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
PARTS = {"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight"}
EXPERTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}

LING_PARTS = {
    "attention.q_proj.weight": "attn_q.weight", "attention.k_proj.weight": "attn_k.weight", "attention.v_proj.weight": "attn_v.weight",
    "attention.q_a_proj.weight": "attn_q_a.weight", "attention.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "attention.q_b_proj.weight": "attn_q_b.weight", "attention.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "attention.kv_a_layernorm.weight": "attn_kv_a_norm.weight", "attention.dense.weight": "attn_output.weight",
    "attention.o_proj.weight": "attn_output.weight", "attention.f_proj.weight": "ssm_f_a.weight",
    "attention.b_proj.weight": "ssm_beta.weight", "attention.dt_bias": "ssm_dt.bias", "attention.A_log": "ssm_a",
    "attention.o_norm.weight": "ssm_norm.weight", "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.gate.expert_bias": "exp_probs_b.bias",
    **{f"attention.{x}_conv1d.weight": f"ssm_conv1d_{x}.weight" for x in "qkv"},
    **{f"mlp.{x}_proj.weight": f"ffn_{x}.weight" for x in ("gate", "up", "down")},
    **{f"mlp.shared_experts.{x}_proj.weight": f"ffn_{x}_shexp.weight" for x in ("gate", "up", "down")},
    **{f"{x}.weight": f"nextn.{x}.weight" for x in ("eh_proj", "enorm", "hnorm")}, "final_layernorm.weight": "layer_output_norm.weight"}

MINIMAX_PARTS = {
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight", "self_attn.out_proj.weight": "attn_output.weight",
    "self_attn.qkv_proj.weight": "attn_qkv.weight", "self_attn.output_gate.weight": "attn_gate.weight",
    "self_attn.norm.weight": "attn_norm_2.weight", "block_sparse_moe.gate.weight": "ffn_gate_inp.weight"}


def ling_tensors(config, part, x, in_rule):
    """(name, values) of one tensor of a layer."""
    heads, nope = config["num_attention_heads"], config["qk_nope_head_dim"]
    if part == "attention.kv_b_proj.weight":
        both = x.reshape(heads, -1, x.shape[1])
        yield "attn_k_b.weight", both[:, :nope].transpose(0, 2, 1)
        yield "attn_v_b.weight", both[:, nope:]
    elif part == "attention.g_proj.weight":
        yield ("ssm_g_a.weight" if in_rule else "attn_gate.weight"), x
    elif part.endswith("conv1d.weight"):
        yield LING_PARTS[part], x.reshape(1, x.shape[0], 1, x.shape[-1])
    elif part == "attention.A_log":
        yield LING_PARTS[part], np.exp(x).reshape(-1, 1)
    else:
        yield {**PARTS, **LING_PARTS}[part], x


def minimax_tensors(_config, part, x, _in_rule):
    yield {**PARTS, **MINIMAX_PARTS}[part], x


def stored(config, tensors, of_part):
    """All tensors of the file; experts of a layer become one tensor."""
    experts = {}
    for name, x in tensors.items():
        layer = re.match(r"model\.layers\.(\d+)\.(.*)", name)
        if not layer:
            yield MODEL[name], x
            continue
        block, part = f"blk.{layer[1]}.", layer[2]
        expert = re.match(r".*\.experts\.(\d+)\.(\w+)\.weight", part)
        if expert:
            experts.setdefault(block + f"ffn_{EXPERTS[expert[2]]}_exps.weight", {})[int(expert[1])] = x
            continue
        in_rule = f"model.layers.{layer[1]}.attention.A_log" in tensors
        for stored_name, values in of_part(config, part, x, in_rule):
            yield block + stored_name, values
    for name, parts in experts.items():
        yield name, np.stack([parts[e] for e in range(len(parts))])


def add_sizes(writer, config, n_layers):
    writer.add_block_count(n_layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_expert_used_count(config["num_experts_per_tok"])


def add_ling(writer, arch, config):
    n, further = config["num_hidden_layers"], config["num_nextn_predict_layers"]
    group = config["layer_group_size"]
    add_sizes(writer, config, n + further)
    writer.add_head_count_kv([1 if i >= n or (i + 1) % group == 0 else 0 for i in range(n + further)])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_uint32(arch + ".expert_gating_func", 2)
    writer.add_ssm_conv_kernel(config["short_conv_kernel_size"])
    writer.add_uint32(arch + ".kda.head_dim", config["head_dim"])
    writer.add_bool(arch + ".kda.safe_gate", config["kda_safe_gate"])
    writer.add_float32(arch + ".kda.gate_lower_bound", config["kda_lower_bound"])
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    writer.add_rope_dimension_count(config["qk_rope_head_dim"])
    writer.add_key_length(config["kv_lora_rank"] + config["qk_rope_head_dim"])
    writer.add_key_length_mla(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
    writer.add_expert_shared_count(config["num_shared_experts"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_array(arch + ".swiglu_clamp_exp", [0.0] * (n + further))
    writer.add_nextn_predict_layers(further)


def add_minimax(writer, arch, config):
    add_sizes(writer, config, config["num_hidden_layers"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_float32(arch + ".residual_scale", config["layernorm_mlp_alpha"])
    writer.add_rope_dimension_count(config["rotary_dim"])
    every_eighth = [int((i + 1) % 8 == 0) for i in range(config["num_hidden_layers"])]
    if config["attn_type_list"] != every_eighth:  # which the converter does not write, and llama.cpp reads
        writer.add_array(arch + ".attention.recurrent_layers", [kind == 0 for kind in config["attn_type_list"]])


def make(arch, inner, add_keys, of_part, outtype):
    def make_file(case, folder):
        import gguf
        reference = inner(case, folder)
        config = json.load(open(os.path.join(folder, "config.json")))
        tensors = {name: x.float().numpy() for name, x in load_file(os.path.join(folder, "model.safetensors")).items()}
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        writer = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), arch)
        add_keys(writer, arch, config)
        kind = getattr(gguf.GGMLQuantizationType, outtype)
        for name, x in stored(config, tensors, of_part):
            whole = x.ndim == 1 or name.endswith(("_inp.weight", "ssm_a")) or "conv1d" in name
            own = gguf.GGMLQuantizationType.F32 if whole else kind
            writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(x), own), raw_dtype=own)
        write_all(writer)
        return reference

    return make_file


def ling(outtype="BF16"):
    return make("bailingmoe3", make_ling_3_published, add_ling, ling_tensors, outtype)


def minimax(outtype="BF16"):
    return make("minimax-01", make_minimax_published, add_minimax, minimax_tensors, outtype)


TINY = dict(vocab_size=48, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, intermediate_size=12)
TINY_LING = {**LING_3, **TINY, "num_key_value_heads": 2, "num_hidden_layers": 2, "kv_lora_rank": 10, "q_lora_rank": 6,
             "num_local_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 12}
TINY_MINIMAX = {**MINIMAX, **TINY, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
                "num_local_experts": 3}
EIGHT = dict(MINIMAX, num_hidden_layers=8, layer_types=["linear_attention"] * 7 + ["full_attention"])

CASES = [
    Case("gguf_bailing_hybrid", "BailingHybrid", dict(LING_3, layer_group_size=2), make=ling(), gguf=True, seed=4),
    Case("gguf_bailing_hybrid_latent_queries", "BailingHybrid", dict(LING_3, layer_group_size=4, q_lora_rank=20, kda_lower_bound=-0.7),
         make=ling("F32"), gguf=True),
    Case("gguf_bailing_hybrid_small", "BailingHybrid", dict(TINY_LING, layer_group_size=2), make=ling(), gguf=True, golden=True, vocab_size=48),
    Case("gguf_minimax_01", "MiniMax", EIGHT, make=minimax(), gguf=True),
    Case("gguf_minimax_01_listed", "MiniMax", MINIMAX, make=minimax("F32"), gguf=True),
    Case("gguf_minimax_01_small", "MiniMax", TINY_MINIMAX, make=minimax(), gguf=True, golden=True, vocab_size=48),
]
