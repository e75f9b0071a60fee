# SPDX-License-Identifier: MIT
"""Small random checkpoints of public families and their variations, saved by `transformers`.

A case is one folder as a user would download it. Its reference computes the logits: the model of
`transformers`, or our own PyTorch model if `transformers` has none.
"""

import json
import os
import re

import torch
import transformers as tr
from safetensors.torch import load_file, save_file

import gguf_by_hand
import gguf_files
import gguf_hybrids
import hybrids
import maple
import packed
import predictions
import quantised
import torchscale
import xmoe
from checkpoint import LINEAR, LLAMA3, ODD, SIZES, YARN, Case, forward, make_transformers, randomise, to_bfloat16
from gguf_files import gguf_case
from predictions import with_guesses

def make_phimoe(case, folder):
    """With the architecture name of published files, which llama.cpp's converter requires."""
    reference = make_transformers(case, folder)
    rope = reference.model.config.rope_parameters
    if "long_factor" in rope:  # for short texts transformers uses the short ones, our session the long ones
        rope["short_factor"] = rope["long_factor"]
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config["architectures"] = ["PhiMoEForCausalLM"]
    json.dump(config, open(path, "w"), indent=2)
    return reference


def make_longrope(case, folder):
    """With the long factors in place of the short ones, which transformers uses until a text is long."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    rope = config.get("rope_scaling") or config["rope_parameters"]
    rope["short_factor"] = rope["long_factor"]
    reference.model.config.rope_parameters["short_factor"] = rope["long_factor"]
    json.dump(config, open(path, "w"), indent=2)
    return forward(tr.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())


def make_without_rotated_part(case, folder):
    """Without partial_rotary_factor, for which the family has a default."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    del config["rope_parameters"]["partial_rotary_factor"]
    json.dump(config, open(path, "w"), indent=2)
    return reference


def make_published_lfm2(case, folder):
    """With the keys of published files: other names, and what others say already."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    d = config["hidden_size"]
    config["block_ff_dim"] = config.pop("intermediate_size")
    config["tie_embedding"] = config.pop("tie_word_embeddings")
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["full_attn_idxs"] = [i for i, kind in enumerate(config.pop("layer_types")) if kind == "full_attention"]
    config.update(block_dim=d, conv_dim=d, conv_dim_out=d, num_heads=config["num_attention_heads"], block_norm_eps=1e-5,
                  block_use_swiglu=True, use_pos_enc=True, block_mlp_init_scale=1.0, block_out_init_scale=1.0,
                  block_use_xavier_init=True, conv_use_xavier_init=True)
    json.dump(config, open(path, "w"), indent=2)
    return reference


def make_published_v3(case, folder):
    """With the keys and the multi-token-prediction layer of published files."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config.pop("num_mtp_layers", None)
    config.update(model_type="kimi_k2" if case.name == "kimi_k2" else "deepseek_v3", topk_method="noaux_tc",
                  scoring_func="sigmoid", moe_layer_freq=1, ep_size=1, seq_aux=True,
                  aux_loss_alpha=0.001)
    json.dump(config, open(path, "w"), indent=2)
    return predictions.add(case, folder, reference)


def make_published_glm4_lite(case, folder):
    """With the keys and the multi-token-prediction layer of published files."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    for key in ("mlp_layer_types", "head_dim"):
        config.pop(key, None)
    config.update(topk_method="noaux_tc", first_k_dense_replace=1, partial_rotary_factor=1.0,
                  rope_scaling=None, rope_theta=config.pop("rope_parameters")["rope_theta"])
    json.dump(config, open(path, "w"), indent=2)
    return predictions.add(case, folder, reference)


def make_sarvam_published(case, folder):
    """With the keys of published files, which transformers renames, and the class that they name."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    for published, key in (("num_experts", "n_routed_experts"), ("num_shared_experts", "n_shared_experts"),
                           ("use_qkv_bias", "attention_bias")):
        config[published] = config.pop(key)
    config["architectures"] = ["SarvamMoEForCausalLM"]
    config["score_function"] = "sigmoid"
    if case.gguf:  # llama.cpp's converter reads a known model's keys through transformers, which has renamed them
        config["model_type"] = "published"
    json.dump(config, open(path, "w"), indent=2)
    return reference


def ling2_name(name):
    """The name of a tensor of the layer that guesses tokens, of which transformers has others."""
    for old, new in (("shared_head.norm", "final_layernorm"), ("self_attn.o_proj", "attention.dense"),
                     ("self_attn.q_norm", "attention.query_layernorm"), ("self_attn.k_norm", "attention.key_layernorm"),
                     ("gate.e_score_correction_bias", "gate.expert_bias")):
        name = name.replace(old, new)
    return name


def make_ling2(case, folder):
    """Ling 2 as published. Its arithmetic is Sarvam's with half of each head rotated; its tensors have Sarvam's names."""
    reference = make_sarvam_published(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    rope = config.pop("rope_parameters")
    config.update(model_type="bailing_moe", architectures=["BailingMoeV2ForCausalLM"], num_nextn_predict_layers=1,
                  moe_shared_expert_intermediate_size=12, moe_router_enable_expert_bias=True, score_function="sigmoid",
                  router_dtype="fp32", use_bias=False, use_rmsnorm=True, embedding_dropout=0.0, output_dropout=0.0,
                  max_window_layers=20, rope_theta=rope["rope_theta"], partial_rotary_factor=rope["partial_rotary_factor"],
                  rope_scaling=None if rope["rope_type"] == "default" else dict(
                      type="yarn", factor=rope["factor"],
                      original_max_position_embeddings=rope["original_max_position_embeddings"]))
    json.dump(config, open(path, "w"), indent=2)
    reference = predictions.add(case, folder, reference)
    path = os.path.join(folder, "model.safetensors")
    layer = f"model.layers.{config['num_hidden_layers']}."
    tensors = {ling2_name(name) if name.startswith(layer) else name: tensor for name, tensor in load_file(path).items()
               if not re.match(r"model\.layers\..*\.(embed_tokens|head)\.", name)}  # the layer has no copies of them
    parts = [tensors.pop(f"{layer}self_attn.{part}_proj.weight") for part in "qkv"]
    tensors[layer + "attention.query_key_value.weight"] = torch.cat(parts)
    save_file(tensors, path)
    return reference


def make_ling1(case, folder):
    """Ling 1 as published, from a Granite whose arithmetic is the same: softmax over the chosen experts, and a shared one."""
    reference = make_transformers(case, folder)
    model, divided = reference.model, case.name.endswith("norm_head")
    path = os.path.join(folder, "config.json")
    saved = json.load(open(path))
    config = {key: saved[key] for key in (
        "bos_token_id", "dtype", "eos_token_id", "hidden_act", "hidden_size", "max_position_embeddings", "num_attention_heads",
        "num_experts_per_tok", "num_hidden_layers", "num_key_value_heads", "pad_token_id", "rms_norm_eps", "vocab_size")}
    config.update(model_type="bailing_moe", architectures=["BailingMoeForCausalLM"], num_experts=saved["num_local_experts"],
                  num_shared_experts=2, moe_intermediate_size=saved["intermediate_size"], intermediate_size=None,
                  first_k_dense_replace=0, use_bias=saved["attention_bias"], use_qkv_bias=saved["attention_bias"],
                  norm_head=divided, norm_softmax=False, norm_topk_prob=True, rope_scaling=None, use_sliding_window=False,
                  sliding_window=4096, max_window_layers=28, rope_theta=saved["rope_parameters"]["rope_theta"],
                  tie_word_embeddings=False)
    json.dump(config, open(path, "w"), indent=2)
    source, tensors = model.state_dict(), {}
    for name, tensor in source.items():
        new = name.replace("self_attn.o_proj", "attention.dense").replace("embed_tokens", "word_embeddings").replace(
            "block_sparse_moe.router", "mlp.gate").replace("shared_mlp.output_linear", "mlp.shared_experts.down_proj")
        if "self_attn.q_proj" in name:
            parts = [source[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            tensors[name.replace("self_attn.q_proj", "attention.query_key_value")] = torch.cat(parts)
        elif "shared_mlp.input_linear" in name:
            for part, half in zip(("gate", "up"), tensor.chunk(2)):
                tensors[name.replace("shared_mlp.input_linear", f"mlp.shared_experts.{part}_proj")] = half
        elif "experts.gate_up_proj" in name:
            for e, expert in enumerate(tensor):
                for part, half in zip(("gate", "up"), expert.chunk(2)):
                    tensors[name.split("block_")[0] + f"mlp.experts.{e}.{part}_proj.weight"] = half
        elif "experts.down_proj" in name:
            for e, expert in enumerate(tensor):
                tensors[name.split("block_")[0] + f"mlp.experts.{e}.down_proj.weight"] = expert
        elif "self_attn.k_proj" not in name and "self_attn.v_proj" not in name:
            tensors[new] = tensor
    save_file({name: t.bfloat16().contiguous() for name, t in tensors.items()}, os.path.join(folder, "model.safetensors"))
    if divided:
        head = model.lm_head.weight
        head.data = head.data / (head.data.norm(dim=0, keepdim=True) + 1e-7)
    return reference


def make_gemma2_published(case, folder):
    """With the keys of published files: no layer_types, no caps, and rope_theta at the top level."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    for key in ("layer_types", "attn_logit_softcapping", "final_logit_softcapping", "tie_word_embeddings"):
        config.pop(key, None)
    config.update(cache_implementation="hybrid", hidden_act="gelu_pytorch_tanh",
                  rope_theta=config.pop("rope_parameters")["rope_theta"])
    json.dump(config, open(path, "w"), indent=2)
    return reference


def make_gemma3_published(case, folder):
    """With the keys of published files, and without those that they leave to defaults."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope["full_attention"]["rope_theta"]
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    config.update(rope_scaling=None, sliding_window_pattern=2, cache_implementation="hybrid",
                  attn_logit_softcapping=None, final_logit_softcapping=None)
    for key in ("layer_types", "tie_word_embeddings", "dtype"):
        config.pop(key, None)
    json.dump(config, open(path, "w"), indent=2)
    return reference


def make_gemma3_with_images(case, folder):
    """A model that sees images; its text part is the reference. Published files leave sizes to defaults."""
    text = {key: value for key, value in {**SIZES, **GEMMA3, **case.config}.items() if value is not None}
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28,
                  patch_size=14)
    config = tr.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    whole = randomise(tr.Gemma3ForConditionalGeneration(config), case.seed)
    whole.save_pretrained(folder)
    to_bfloat16(folder)
    if case.name.endswith("published"):
        path = os.path.join(folder, "config.json")
        saved = json.load(open(path))
        saved["text_config"] = {key: saved["text_config"][key] for key in (
            "hidden_size", "intermediate_size", "model_type", "num_hidden_layers", "sliding_window")}
        saved["text_config"]["rope_scaling"] = dict(rope_type="linear", factor=8.0)
        saved.update(eos_token_id=[1, 106])
        json.dump(saved, open(path, "w"), indent=2)
    model = tr.Gemma3ForCausalLM(config.text_config).eval().float()
    model.model, model.lm_head = whole.model.language_model, whole.lm_head
    return forward(model)


def make_gemma4_published(case, folder):
    """With the keys of published files, which name the heads of layers without a window for all of them."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config.pop("per_layer_config")
    config.update({key: case.config[key] for key in ("global_head_dim", "num_global_key_value_heads")})
    if case.config["layer_types"] is None:
        config.pop("layer_types")
    json.dump(config, open(path, "w"), indent=2)
    return reference


def make_gemma4_with_images(case, folder):
    """A model that sees images and hears sounds; its text part is the reference."""
    text = {**SIZES, "intermediate_size": 40, **case.config}
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                  head_dim=8, position_embedding_size=16)
    audio = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, output_proj_dims=16,
                 subsampling_conv_channels=[4, 4])
    config = tr.Gemma4Config(text_config=text, vision_config=vision, audio_config=audio)
    whole = randomise(tr.Gemma4ForConditionalGeneration(config), case.seed)
    whole.save_pretrained(folder)
    to_bfloat16(folder)
    model = tr.Gemma4ForCausalLM(config.text_config).eval().float()
    model.model, model.lm_head = whole.model.language_model, whole.lm_head
    return forward(model)


def make_qwen3_next_published(case, folder):
    """With the keys and the layers that predict further tokens of published files."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    rope = config.pop("rope_parameters")
    config.pop("layer_types")
    config.update(rope_theta=rope["rope_theta"], rope_scaling=None, partial_rotary_factor=0.25,
                  full_attention_interval=4, use_sliding_window=False)
    json.dump(config, open(path, "w"), indent=2)
    return predictions.add(case, folder, reference)


def make_qwen3_5_with_images(case, folder):
    """A model that sees images; its text part is the reference."""
    text = {**SIZES, "intermediate_size": 40, **case.config}
    vision = dict(hidden_size=16, intermediate_size=16, depth=1, num_heads=2, out_hidden_size=text["hidden_size"],
                  num_position_embeddings=16)
    config = getattr(tr, case.family + "Config")(text_config=text, vision_config=vision)
    whole = randomise(getattr(tr, case.family + "ForConditionalGeneration")(config), case.seed)
    whole.save_pretrained(folder)
    to_bfloat16(folder)
    model = getattr(tr, case.family + "ForCausalLM")(config.text_config).eval().float()
    model.model, model.lm_head = whole.model.language_model, whole.lm_head
    return forward(model)


def make_olmo_hybrid(case, folder):
    """With the names of published files; what transformers writes splits the convolutions wrongly."""
    reference = make_transformers(case, folder)
    config = reference.model.config
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    path = os.path.join(folder, "model.safetensors")
    tensors = {k: v for k, v in load_file(path).items() if "conv1d" not in k}
    for name, tensor in reference.model.state_dict().items():
        if not name.endswith("conv1d.weight"):
            continue
        parts = [keys, keys, tensor.shape[0] - 2 * keys]
        for part, weight in zip("qkv", tensor.split(parts)):
            tensors[name.replace("conv1d", part + "_conv1d")] = weight.bfloat16().contiguous()
    save_file(tensors, path)
    return reference


def make_olmo3_published(case, folder):
    """With the rotary keys of published files: the scaling is that of the layers without a window."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    rope = config.pop("rope_parameters")["full_attention"]
    config.update(rope_theta=rope.pop("rope_theta"), rope_scaling=rope)
    json.dump(config, open(path, "w"), indent=2)
    return reference


def make_minimax_published(case, folder):
    """With the keys of published files."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config.update(rope_theta=config.pop("rope_parameters")["rope_theta"], rotary_dim=6, attn_type_list=[1, 1],
                  scoring_func="sigmoid", use_routing_bias=True, use_qk_norm=True, qk_norm_type="per_layer",
                  shared_intermediate_size=0, use_mtp=True, num_mtp_modules=3, mtp_transformer_layers=1)
    json.dump(config, open(path, "w"), indent=2)
    return reference


def make_ernie_published(case, folder):
    """With the keys and the multi-token-prediction layer of published files."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config.update(rope_theta=config.pop("rope_parameters")["rope_theta"], moe_gate="topk", moe_use_aux_free=True,
                  moe_capacity=[6, 6, 6])
    json.dump(config, open(path, "w"), indent=2)
    return predictions.add(case, folder, reference)


def make_mimo(case, folder):
    """MiMo, which transformers lacks: a Qwen2 of another name, with its multi-token-prediction layer."""
    reference = make_transformers(case, folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config.pop("layer_types")
    config.update(model_type="mimo", architectures=["MiMoForCausalLM"], attention_bias=True, head_dim=8, rope_scaling=None,
                  rope_theta=config.pop("rope_parameters")["rope_theta"], use_mrope=False)
    json.dump(config, open(path, "w"), indent=2)
    return predictions.add(case, folder, reference)


def write(case, folder):
    """Writes the checkpoint; returns its reference, a function of token ids and of whether K and V are rounded
    to float16 that gives logits (n, vocab) in float32."""
    os.makedirs(folder, exist_ok=True)
    reference = (case.make or make_transformers)(case, folder)

    def logits(ids, kv16):
        with torch.no_grad():
            return reference(ids, kv16).float().numpy()

    logits.model = getattr(reference, "model", None)
    if hasattr(reference, "guesses"):
        logits.guesses = reference.guesses
    return logits


MOE = dict(num_experts=6, num_experts_per_tok=2)
LOCAL = dict(num_local_experts=6, num_experts_per_tok=2)
# More value heads than key heads; three layers with a rule, then one with attention.
RULE = dict(num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
            linear_value_head_dim=12, linear_conv_kernel_dim=4)
ODD_RULE = dict(ODD, num_hidden_layers=3, linear_num_key_heads=1, linear_num_value_heads=3,
                linear_key_head_dim=7, linear_value_head_dim=5, linear_conv_kernel_dim=3,
                layer_types=["full_attention", "linear_attention", "linear_attention"])
MAMBA = dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
             shared_intermediate_size=28, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=12,
             mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=16)
DELTA = dict(RULE, head_dim=16)
ODD_DELTA = dict(ODD_RULE, head_dim=24)
QWEN3_NEXT = dict(DELTA, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20,
                  shared_expert_intermediate_size=28)

QWEN_MOE = dict(MOE, moe_intermediate_size=20)
GPT_OSS = dict(LOCAL, head_dim=16, sliding_window=8, rope_parameters=dict(YARN, truncate=False, rope_theta=150000.0))
DEEPSEEK_YARN = dict(YARN, beta_fast=32, beta_slow=1, mscale=0.707, mscale_all_dim=0.8)
DEEPSEEK = dict(num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=8, qk_rope_head_dim=8,
                v_head_dim=8, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=12,
                first_k_dense_replace=1, topk_method="greedy", routed_scaling_factor=1.0, norm_topk_prob=False)
DEEPSEEK_V3 = dict(num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=8, qk_rope_head_dim=8,
                   v_head_dim=8, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
                   n_shared_experts=1, moe_intermediate_size=12, first_k_dense_replace=1, routed_scaling_factor=2.5,
                   num_mtp_layers=0)
SARVAM = dict(n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=12, head_dim=16,
              first_k_dense_replace=1, routed_scaling_factor=2.5)
LING2 = dict(SARVAM, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2,
             num_hidden_layers=3, rope_parameters=dict(rope_type="default", rope_theta=600000.0, partial_rotary_factor=0.5))
LING1 = dict(LOCAL, attention_multiplier=8 ** -0.5, intermediate_size=20, shared_intermediate_size=40)
# With an eps in which the norms of the latents differ visibly from the others.
GLM4_LITE = dict(num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=4,
                 v_head_dim=16, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=12,
                 routed_scaling_factor=1.8, rms_norm_eps=1e-2)
PHI_LONG = dict(LOCAL, max_position_embeddings=256, original_max_position_embeddings=128, attention_bias=True,
                lm_head_bias=True, rope_parameters=dict(
                    rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=128, factor=2.0,
                    short_factor=[1.0, 1.1, 1.3, 1.7], long_factor=[1.5, 2.5, 4.5, 8.0],
                    short_mscale=(8 / 7) ** 0.5, long_mscale=(8 / 7) ** 0.5))
PHI3_LONG = dict(max_position_embeddings=128, original_max_position_embeddings=32, rope_parameters=dict(
    rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5, original_max_position_embeddings=32,
    short_factor=[1.0, 1.1], long_factor=[1.5, 4.5]))
PHI3_LONG_SHORT = dict(PHI3_LONG, max_position_embeddings=384, original_max_position_embeddings=96, rope_parameters=dict(
    PHI3_LONG["rope_parameters"], original_max_position_embeddings=96))
LFM2 = dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], intermediate_size=66,
            block_multiple_of=8, block_ffn_dim_multiplier=1.1)
LFM2_MOE = dict(num_hidden_layers=4, layer_types=["conv", "conv", "full_attention", "conv"], intermediate_size=40,
                moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2, num_dense_layers=1,
                routed_scaling_factor=1.5)
GLM4 = dict(n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=12,
            first_k_dense_replace=1, routed_scaling_factor=1.5, head_dim=16)
DOTS1 = dict(n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=12, n_group=1,
             topk_group=1, first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True)
MINIMAX = dict(LOCAL, head_dim=12, intermediate_size=12, rotary_dim=6)
OLMO3 = dict(num_hidden_layers=4, intermediate_size=20, sliding_window=8)
OLMO3_YARN = dict(full_attention=dict(YARN, rope_theta=500000.0, attention_factor=1.2, beta_fast=32, beta_slow=1),
                  sliding_attention=dict(rope_type="default", rope_theta=500000.0))
ERNIE = dict(moe_num_experts=6, moe_k=2, moe_num_shared_experts=2, moe_intermediate_size=12)
ROPE = dict(rope_type="default", rope_theta=1e4)
BITNET_SIZES = dict(vocab_size=48, hidden_size=128, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
                    head_dim=32, rms_norm_eps=1e-6)
GEMMA3 = dict(num_hidden_layers=3, head_dim=16, sliding_window=8, query_pre_attn_scalar=24,
              layer_types=["sliding_attention", "full_attention", "sliding_attention"])
# Those that published files of models that see images do not name.
GEMMA3_SIZES = dict(intermediate_size=40, vocab_size=None, num_attention_heads=None, num_key_value_heads=None,
                    head_dim=None, max_position_embeddings=None, query_pre_attn_scalar=None, layer_types=None,
                    rope_parameters=dict(full_attention=dict(LINEAR, factor=8.0, rope_theta=1e6),
                                         sliding_attention=dict(rope_type="default", rope_theta=1e4)))
# Layers without a window have other heads, whose keys are their values in the larger models.
GEMMA4 = dict(num_hidden_layers=4, head_dim=8, global_head_dim=16, sliding_window=8, hidden_size_per_layer_input=0,
              layer_types=["sliding_attention", "full_attention"] * 2, final_logit_softcapping=30.0)
GEMMA4_K_EQ_V = dict(attention_k_eq_v=True, num_global_key_value_heads=1)
GEMMA4_EXPERTS = dict(enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=24)
GEMMA4_E = dict(GEMMA4, num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3,
                num_kv_shared_layers=3, use_double_wide_mlp=True, hidden_size_per_layer_input=12, vocab_size_per_layer_input=96)
GEMMA2 = dict(num_hidden_layers=3, head_dim=16, sliding_window=8, query_pre_attn_scalar=24,
              attn_logit_softcapping=1.5, final_logit_softcapping=20.0)
TINY = dict(vocab_size=48, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
            intermediate_size=12, num_local_experts=4)
GRANITE = dict(embedding_multiplier=2.0, attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=6.0)
# Embedding and head in float32; layers in the detected format, with float activations.
TIED_TERNARY = ("--set", "embedding=f32", "--set", "layers.*=:f32")
TERNARY = (*TIED_TERNARY, "--set", "head=f32")
# Rounding K and V changes some activation codes by one, each of which moves its input by amax / 127.
A8 = dict(convert=("--set", "embedding=f32"), tolerance=2e-2, tolerance_kv16=3e-3)
A8_HEAD = dict(A8, convert=(*A8["convert"], "--set", "head=f32"))

CASES = [
    Case("llama", "Llama", golden=True),
    Case("llama_biases_tied", "Llama", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    Case("llama_odd", "Llama", dict(ODD, head_dim=10)),
    Case("llama_rope_llama3", "Llama", dict(rope_parameters=LLAMA3, attention_bias=True), golden=True),
    Case("llama_rope_yarn", "Llama", dict(rope_parameters=YARN), old_keys=True, golden=True),
    Case("llama_rope_linear", "Llama", dict(rope_parameters=LINEAR), old_keys=True),
    Case("llama_rope_dynamic", "Llama", dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0)),
         old_keys=True),
    Case("llama_one_kv_head", "Llama", dict(num_key_value_heads=1)),
    Case("mistral_window", "Mistral", dict(sliding_window=8), golden=True),
    Case("mistral_full", "Mistral", dict(sliding_window=None, head_dim=16), old_keys=True),
    Case("qwen2", "Qwen2", dict(tie_word_embeddings=True), golden=True),
    Case("qwen2_windows", "Qwen2", dict(use_sliding_window=True, sliding_window=8, max_window_layers=1)),
    Case("qwen2_odd", "Qwen2", ODD, old_keys=True),
    Case("mimo_mtp", "Qwen2", make=make_mimo, golden=True),
    Case("mimo_odd", "Qwen2", dict(ODD, hidden_size=48, rms_norm_eps=1e-2), make=make_mimo),
    Case("qwen3", "Qwen3", dict(head_dim=16), golden=True),
    Case("qwen3_tied", "Qwen3", dict(head_dim=8, tie_word_embeddings=True, attention_bias=True)),
    Case("qwen3_windows", "Qwen3", dict(head_dim=16, use_sliding_window=True, sliding_window=8,
                                        max_window_layers=1)),
    Case("qwen3_next", "Qwen3Next", QWEN3_NEXT, golden=True),
    Case("qwen3_next_odd", "Qwen3Next", dict(QWEN3_NEXT, **ODD_DELTA, mlp_only_layers=[1], attention_bias=True,
                                             norm_topk_prob=False, tie_word_embeddings=True), layout="fused"),
    Case("qwen3_next_published", "Qwen3Next", QWEN3_NEXT, make=make_qwen3_next_published),
    Case("qwen3_5", "Qwen3_5Text", DELTA, golden=True),
    Case("qwen3_5_mtp", "Qwen3_5Text", DELTA, make=with_guesses(make_transformers), golden=True),
    Case("qwen3_5_moe_mtp", "Qwen3_5MoeText", dict(QWEN3_NEXT, tie_word_embeddings=True), make=with_guesses(make_transformers),
         tolerance_kv16=3e-4),
    Case("qwen3_5_odd", "Qwen3_5Text", dict(ODD_DELTA, tie_word_embeddings=True)),
    Case("qwen3_5_with_images", "Qwen3_5", DELTA, make=make_qwen3_5_with_images, golden=True),
    Case("qwen3_5_moe", "Qwen3_5MoeText", QWEN3_NEXT, golden=True),
    Case("qwen3_5_moe_with_images", "Qwen3_5Moe", dict(QWEN3_NEXT, **ODD_DELTA), make=make_qwen3_5_with_images,
         vocab_size=101),
    Case("olmo_hybrid", "OlmoHybrid", RULE, make=make_olmo_hybrid, golden=True),
    Case("olmo_hybrid_odd", "OlmoHybrid", dict(ODD_RULE, linear_allow_neg_eigval=False,
                                               rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
         layout="fused"),
    Case("granite", "Granite", dict(GRANITE, tie_word_embeddings=True), golden=True),
    Case("granite_biases", "Granite", dict(GRANITE, attention_bias=True, mlp_bias=True)),
    Case("olmo", "Olmo", dict(clip_qkv=0.8), golden=True),
    Case("olmo_tied", "Olmo", dict(ODD, tie_word_embeddings=True), old_keys=True),
    Case("olmo2", "Olmo2", golden=True),
    Case("olmo2_odd", "Olmo2", dict(ODD, attention_bias=True, tie_word_embeddings=True)),
    Case("olmo3", "Olmo3", dict(OLMO3, rope_parameters=OLMO3_YARN), golden=True),
    Case("olmo3_published", "Olmo3", dict(OLMO3, rope_parameters=OLMO3_YARN), make=make_olmo3_published),
    Case("olmo3_plain", "Olmo3", dict(OLMO3, attention_bias=True, tie_word_embeddings=True, layer_types=[
        "full_attention", "sliding_attention", "full_attention", "sliding_attention"])),
    Case("flex_olmo", "FlexOlmo", dict(MOE, intermediate_size=20), golden=True),
    Case("flex_olmo_fused", "FlexOlmo", dict(MOE, norm_topk_prob=True, attention_bias=True), layout="fused"),
    Case("smollm3", "SmolLM3", dict(num_hidden_layers=4, intermediate_size=20), golden=True),
    Case("smollm3_windows", "SmolLM3", dict(num_hidden_layers=3, no_rope_layers=[0, 1, 0], use_sliding_window=True,
                                            sliding_window=8, attention_bias=True, mlp_bias=True,
                                            tie_word_embeddings=False), old_keys=True),
    Case("olmoe", "Olmoe", MOE, golden=True),
    Case("olmoe_clipped", "Olmoe", dict(MOE, clip_qkv=0.9), seed=2, golden=True),
    Case("olmoe_fused", "Olmoe", dict(MOE, norm_topk_prob=True, num_key_value_heads=4), layout="fused"),
    Case("mixtral", "Mixtral", LOCAL, seed=2, golden=True),
    Case("mixtral_window_fused", "Mixtral", dict(LOCAL, sliding_window=8), layout="fused", old_keys=True),
    Case("qwen2_moe", "Qwen2Moe", dict(QWEN_MOE, shared_expert_intermediate_size=28), golden=True),
    Case("qwen2_moe_sparse_step", "Qwen2Moe", dict(QWEN_MOE, shared_expert_intermediate_size=28, num_hidden_layers=4,
                                                   decoder_sparse_step=2, mlp_only_layers=[3])),
    Case("qwen2_moe_fused", "Qwen2Moe", dict(QWEN_MOE, shared_expert_intermediate_size=12, qkv_bias=False),
         layout="fused"),
    Case("qwen3_moe", "Qwen3Moe", dict(QWEN_MOE, head_dim=16, norm_topk_prob=True), golden=True),
    Case("qwen3_moe_fused", "Qwen3Moe", dict(QWEN_MOE, head_dim=12, norm_topk_prob=True), layout="fused"),
    Case("qwen3_moe_window", "Qwen3Moe", dict(QWEN_MOE, head_dim=16, use_sliding_window=True, sliding_window=8)),
    Case("granitemoe", "GraniteMoe", dict(GRANITE, **LOCAL, tie_word_embeddings=True), golden=True),
    Case("granitemoeshared", "GraniteMoeShared", dict(GRANITE, **LOCAL, shared_intermediate_size=28), golden=True),
    Case("granitemoehybrid", "GraniteMoeHybrid", dict(GRANITE, **LOCAL, **MAMBA, tie_word_embeddings=True), golden=True),
    Case("granitemoehybrid_odd", "GraniteMoeHybrid", dict(GRANITE, **dict(
        MAMBA, mamba_n_heads=9, mamba_d_head=8, mamba_n_groups=3, mamba_d_state=7, mamba_d_conv=3), num_local_experts=0,
        hidden_size=36, num_attention_heads=6, mamba_proj_bias=True, mamba_conv_bias=False, attention_bias=True,
        position_embedding_type="rope"), layout="fused"),
    *hybrids.CASES,
    Case("phimoe", "Phimoe", dict(LOCAL, attention_bias=True, lm_head_bias=True), golden=True),
    Case("phi3", "Phi3", golden=True),
    Case("phi3_odd_window", "Phi3", dict(ODD, sliding_window=8, tie_word_embeddings=True), old_keys=True),
    Case("phi3_longrope", "Phi3", PHI3_LONG, make=make_longrope),
    Case("phi3_longrope_short", "Phi3", PHI3_LONG_SHORT, context=80, golden=True),
    Case("phi3_longrope_old_keys", "Phi3", PHI3_LONG, make=make_longrope, old_keys=True),
    Case("lfm2", "Lfm2", LFM2, golden=True),
    Case("lfm2_odd", "Lfm2", dict(LFM2, **ODD, num_hidden_layers=3, layer_types=["full_attention", "conv", "conv"],
                                  conv_L_cache=5, conv_bias=True, block_auto_adjust_ff_dim=False,
                                  tie_word_embeddings=False, norm_eps=1e-3)),
    Case("lfm2_published", "Lfm2", LFM2, make=make_published_lfm2),
    Case("lfm2_long", "Lfm2", dict(LFM2, layer_types=["conv", "conv", "conv", "full_attention"], conv_L_cache=64)),
    Case("lfm2_moe", "Lfm2Moe", LFM2_MOE, golden=True),
    Case("lfm2_moe_fused", "Lfm2Moe", LFM2_MOE, layout="fused"),
    Case("lfm2_moe_odd", "Lfm2Moe", dict(LFM2_MOE, **ODD, moe_intermediate_size=28, conv_L_cache=4, conv_bias=True,
                                         num_dense_layers=0, norm_topk_prob=False, use_expert_bias=False,
                                         tie_word_embeddings=False)),
    Case("glm4_moe", "Glm4Moe", dict(GLM4, attention_bias=True), golden=True),
    Case("glm4_moe_mtp", "Glm4Moe", dict(GLM4, attention_bias=True), make=with_guesses(make_transformers), golden=True),
    Case("glm4_moe_default_rotation", "Glm4Moe", GLM4, make=make_without_rotated_part),
    Case("glm4_moe_qk_norm", "Glm4Moe", dict(GLM4, use_qk_norm=True, norm_topk_prob=False, first_k_dense_replace=0),
         layout="fused"),
    Case("dots1", "Dots1", DOTS1, golden=True),
    Case("dots1_windows", "Dots1", dict(DOTS1, norm_topk_prob=False, attention_bias=True, num_hidden_layers=3,
                                        sliding_window=8, max_window_layers=2), layout="fused", old_keys=True),
    Case("minimax_m2", "MiniMaxM2", MINIMAX, golden=True),
    Case("minimax_m2_published", "MiniMaxM2", MINIMAX, make=make_minimax_published),
    Case("minimax_m2_fused", "MiniMaxM2", dict(MINIMAX, rotary_dim=None), layout="fused"),
    Case("ernie4_5_moe", "Ernie4_5_Moe", ERNIE, golden=True),
    Case("ernie4_5_moe_mtp", "Ernie4_5_Moe", ERNIE, make=make_ernie_published, golden=True),
    Case("ernie4_5_moe_published", "Ernie4_5_Moe", dict(ERNIE, tie_word_embeddings=False), make=make_ernie_published),
    Case("ernie4_5_moe_layers", "Ernie4_5_Moe", dict(ERNIE, num_hidden_layers=6, moe_layer_start_index=1,
                                                     moe_layer_end_index=4, moe_layer_interval=2,
                                                     moe_num_shared_experts=0), layout="fused"),
    Case("gemma", "Gemma", dict(head_dim=16), golden=True),
    Case("gemma_odd", "Gemma", dict(ODD, head_dim=12, num_key_value_heads=1, attention_bias=True, hidden_act="gelu"),
         old_keys=True),
    Case("gemma2", "Gemma2", GEMMA2, golden=True),
    Case("gemma2_published", "Gemma2", dict(GEMMA2, num_hidden_layers=4, attn_logit_softcapping=50.0,
                                            final_logit_softcapping=30.0), make=make_gemma2_published),
    Case("gemma2_odd", "Gemma2", dict(GEMMA2, **ODD, attention_bias=True, attn_logit_softcapping=None)),
    Case("gemma2_scores_capped", "Gemma2", dict(GEMMA2, final_logit_softcapping=None, num_key_value_heads=1)),
    Case("gemma3", "Gemma3Text", GEMMA3, golden=True, vocab_size=96),
    Case("gemma3_published", "Gemma3Text", dict(GEMMA3, layer_types=["sliding_attention", "full_attention"] * 2,
                                                num_hidden_layers=4), make=make_gemma3_published),
    Case("gemma3_linear", "Gemma3Text", dict(
        GEMMA3, num_hidden_layers=2, layer_types=None, sliding_window=16, attention_bias=True, rope_parameters=dict(
            full_attention=dict(LINEAR, rope_theta=1e6), sliding_attention=dict(rope_type="default", rope_theta=1e4)))),
    Case("gemma3_with_images", "Gemma3", dict(intermediate_size=20), make=make_gemma3_with_images, golden=True),
    Case("gemma3_with_images_published", "Gemma3", GEMMA3_SIZES, make=make_gemma3_with_images, vocab_size=262208),
    Case("gemma4", "Gemma4Text", dict(GEMMA4, **GEMMA4_K_EQ_V), golden=True),
    Case("gemma4_odd", "Gemma4Text", dict(GEMMA4, **ODD, num_hidden_layers=5, layer_types=None, head_dim=10,
                                          global_head_dim=14, final_logit_softcapping=None, attention_bias=True),
         tolerance_kv16=1e-3),  # scores are not divided: a key that is rounded the other way counts more
    Case("gemma4_shared_keys", "Gemma4Text", dict(GEMMA4_E, attention_k_eq_v=True, num_global_key_value_heads=1)),
    Case("gemma4_e", "Gemma4Text", GEMMA4_E, golden=True),
    Case("gemma4_e_odd", "Gemma4Text", dict(GEMMA4_E, **ODD, vocab_size_per_layer_input=101, num_kv_shared_layers=4,
                                            hidden_size_per_layer_input=5, use_double_wide_mlp=False,
                                            attention_bias=True, final_logit_softcapping=None)),
    Case("gemma4_moe", "Gemma4Text", dict(GEMMA4, **GEMMA4_K_EQ_V, **GEMMA4_EXPERTS), golden=True),
    Case("gemma4_moe_odd", "Gemma4Text", dict(
        GEMMA4, **ODD, **GEMMA4_EXPERTS, global_head_dim=24, attention_k_eq_v=True, rope_parameters=dict(
            full_attention=dict(rope_type="proportional", partial_rotary_factor=0.3, rope_theta=5e5),
            sliding_attention=dict(rope_type="default", rope_theta=2e4)))),
    Case("gemma4_moe_published", "Gemma4Text", dict(GEMMA4, **GEMMA4_K_EQ_V, **GEMMA4_EXPERTS),
         make=make_gemma4_published),
    Case("gemma4_moe_shared_keys", "Gemma4Text", dict(GEMMA4_E, **GEMMA4_EXPERTS)),
    Case("gemma4_7_layers_published", "Gemma4Text", dict(GEMMA4, **GEMMA4_K_EQ_V, num_hidden_layers=7, layer_types=None),
         make=make_gemma4_published, tolerance_kv16=2e-3),
    # With more than ten layers the indices have two digits; so many amplify the rounding of keys, too.
    Case("gemma4_heads_by_layer", "Gemma4Text", dict(
        GEMMA4, hidden_size=16, intermediate_size=12, num_attention_heads=2, num_hidden_layers=12, layer_types=None,
        per_layer_config={l: dict(head_dim=16 if l % 6 == 5 else 12) for l in range(12)}), golden=True,
        tolerance=1e-2, tolerance_kv16=1e-2),
    Case("gemma4_with_images", "Gemma4", dict(GEMMA4, **GEMMA4_K_EQ_V, **GEMMA4_EXPERTS), make=make_gemma4_with_images,
         golden=True),
    Case("gpt_oss", "GptOss", GPT_OSS, golden=True),
    Case("deepseek_v3", "DeepseekV3", dict(DEEPSEEK_V3, rope_parameters=dict(DEEPSEEK_YARN, mscale=1.0,
                                                                             mscale_all_dim=1.0)), golden=True),
    Case("deepseek_v3_fused", "DeepseekV3", dict(DEEPSEEK_V3, norm_topk_prob=False, n_group=2, topk_group=1,
                                                 num_hidden_layers=3, rope_interleave=False), layout="fused",
         tolerance_kv16=3e-4),
    Case("deepseek_v3_without_q_latent", "DeepseekV3", dict(DEEPSEEK_V3, q_lora_rank=None, n_group=1, topk_group=1,
                                                            v_head_dim=14), old_keys=True),
    Case("kimi_k2", "DeepseekV3", dict(DEEPSEEK_V3, n_group=1, topk_group=1, routed_scaling_factor=2.827,
                                       rope_parameters=dict(YARN, rope_theta=50000.0, beta_fast=1.0, beta_slow=1.0,
                                                            mscale=1.0, mscale_all_dim=1.0)),
         make=make_published_v3, golden=True),
    Case("glm4_moe_lite", "Glm4MoeLite", GLM4_LITE, golden=True),
    Case("glm4_moe_lite_layers", "Glm4MoeLite", dict(
        GLM4_LITE, num_hidden_layers=4, mlp_layer_types=["sparse", "dense", "sparse", "dense"], n_group=2, topk_group=1,
        q_lora_rank=None, v_head_dim=6, norm_topk_prob=False, n_shared_experts=2, rope_interleave=False), layout="fused"),
    Case("glm4_moe_lite_published", "Glm4MoeLite", dict(GLM4_LITE, hidden_size=36, num_attention_heads=5, num_key_value_heads=5),
         make=make_published_glm4_lite),
    Case("sarvam_moe", "SarvamMoE", SARVAM, golden=True),
    Case("sarvam_moe_fused", "SarvamMoE", dict(SARVAM, attention_bias=True, n_group=3, topk_group=2, norm_topk_prob=False,
                                               tie_word_embeddings=True), layout="fused"),
    Case("bailing_moe_v2", "SarvamMoE", LING2, make=make_ling2, golden=True),
    Case("bailing_moe_v2_yarn", "SarvamMoE", dict(LING2, rope_parameters=dict(YARN, partial_rotary_factor=0.5),
                                                  num_key_value_heads=4, n_group=1, topk_group=1), make=make_ling2, seed=2),
    Case("bailing_moe", "GraniteMoeShared", LING1, make=make_ling1, golden=True),
    Case("bailing_moe_norm_head", "GraniteMoeShared", dict(LING1, attention_bias=True), make=make_ling1),
    Case("deepseek_v3_eps", "DeepseekV3", dict(DEEPSEEK_V3, rms_norm_eps=1e-3)),
    Case("deepseek_v2_groups", "DeepseekV2", dict(DEEPSEEK, q_lora_rank=20, topk_method="group_limited_greedy",
                                                  n_group=3, topk_group=2, num_experts_per_tok=3,
                                                  routed_scaling_factor=16.0, rope_parameters=DEEPSEEK_YARN)),
    Case("gpt_oss_three_layers", "GptOss", dict(GPT_OSS, num_hidden_layers=3)),
    Case("gpt_oss_mxfp4", "GptOss", make=quantised.make_mxfp4, golden=True),
    Case("deepseek_v2", "DeepseekV2", dict(DEEPSEEK, rope_parameters=DEEPSEEK_YARN), golden=True),
    Case("deepseek_v2_plain", "DeepseekV2", dict(DEEPSEEK, num_hidden_layers=3, first_k_dense_replace=2)),
    Case("deepseek_v2_old_keys", "DeepseekV2", dict(DEEPSEEK, v_head_dim=14, routed_scaling_factor=2.5,
                                                    rope_parameters=DEEPSEEK_YARN), old_keys=True, layout="fused"),
    Case("deepseek_v2_odd", "DeepseekV2", dict(DEEPSEEK, hidden_size=36, num_attention_heads=3, num_key_value_heads=3,
                                               kv_lora_rank=14, qk_nope_head_dim=6, qk_rope_head_dim=6, v_head_dim=5,
                                               n_shared_experts=1, tie_word_embeddings=True)),
    Case("bitnet_packed", "BitNet", make=quantised.make_bitnet_packed("autobitlinear"), golden=True, **A8),
    Case("bitnet_packed_divided", "BitNet", make=quantised.make_bitnet_packed("bitlinear"), golden=True, **A8),
    Case("bitnet_online", "BitNet", make=quantised.make_bitnet_online, **A8),
    Case("bitnet_embedding_qwen3", "Qwen3", dict(head_dim=16, rms_norm_eps=1e-6), make=quantised.make_bitnet_embedding,
         golden=True, **A8),
    Case("bitnet_embedding_gemma3", "Gemma3Text", dict(GEMMA3, rms_norm_eps=1e-6), make=quantised.make_bitnet_embedding,
         golden=True, **A8),
    Case("bitnet_embedding_bare", "Qwen3", dict(ODD, head_dim=16, rms_norm_eps=1e-6), make=quantised.make_bitnet_embedding,
         layout="fused", **A8),
    Case("gguf_bitnet_embedding_qwen3", "Qwen3", dict(BITNET_SIZES, num_hidden_layers=1), golden=True, gguf=True, vocab_size=48,
         make=quantised.make_bitnet_embedding_gguf("qwen3"), **A8),
    Case("gguf_bitnet_embedding_gemma3", "Gemma3Text", dict(
        BITNET_SIZES, num_hidden_layers=2, query_pre_attn_scalar=32, layer_types=["full_attention"] * 2, rope_parameters=dict(
            full_attention=ROPE, sliding_attention=ROPE)), gguf=True, vocab_size=48,
         make=quantised.make_bitnet_embedding_gguf("gemma3"), **A8),
    Case("bitnet_normed", "Llama", dict(rms_norm_eps=1e-4), make=quantised.make_bitnet_normed, **A8_HEAD),
    Case("bitnet_mistral", "Mistral", dict(sliding_window=None), make=quantised.make_bitnet_family("bitlinear"), **A8_HEAD),
    Case("bitnet_qwen2", "Qwen2", make=quantised.make_bitnet_family("autobitlinear", ["down_proj"]),
         **dict(A8_HEAD, convert=(*A8_HEAD["convert"], "--set", "*ffn.down=f32"))),
    Case("bitnet_phi3", "Phi3", make=quantised.make_bitnet_family("bitlinear"), **A8_HEAD),
    Case("bitnet_mixtral", "Mixtral", LOCAL, seed=2, make=quantised.make_bitnet_family("bitlinear"), golden=True, **A8_HEAD),
    Case("bitnet_qwen3_moe", "Qwen3Moe", dict(QWEN_MOE, head_dim=16, norm_topk_prob=True),
         make=quantised.make_bitnet_family("autobitlinear"), **dict(A8_HEAD, tolerance=4e-2)),
    Case("bitnet_qwen2_moe", "Qwen2Moe", dict(QWEN_MOE, shared_expert_intermediate_size=28),
         make=quantised.make_bitnet_family("bitlinear", ["shared_expert_gate"]), **A8_HEAD),
    Case("falcon_e", "Llama", dict(num_attention_heads=4, num_key_value_heads=1, head_dim=12, rope_parameters=dict(
        rope_type="default", rope_theta=1000042.0)), make=quantised.make_bitnet_family("bitlinear"), golden=True, **A8_HEAD),
    Case("falcon_e_auto", "Llama", dict(ODD, hidden_size=48, intermediate_size=44), seed=4,
         make=quantised.make_bitnet_family("autobitlinear"), **A8_HEAD),
    Case("trilm", "Llama", make=quantised.make_trilm(1), convert=TERNARY, lossless=True, tolerance_kv16=3e-4),
    Case("trilm_shards", "Llama", dict(vocab_size=48, hidden_size=128, intermediate_size=128, num_hidden_layers=1), golden=True,
         make=quantised.make_trilm(2), convert=TERNARY, lossless=True, tolerance_kv16=3e-4),
    Case("bitnet_plain", "BitNet", dict(hidden_act="relu2")),
    Case("one_bit_llama", "BitNet", make=quantised.make_one_bit, golden=True, **A8),
    Case("bonsai", "Qwen3", make=quantised.make_bonsai, convert=TERNARY, lossless=True),
    Case("maple", "Maple", make=maple.make, convert=TERNARY, lossless=True, golden=True),
    Case("torchscale_top2", "torchscale", dict(moe_top1_expert=False, moe_freq=1, subln=False,
                                               layernorm_embedding=True), make=torchscale.make),
    Case("torchscale_xmoe", "torchscale", dict(use_xmoe=True), make=torchscale.make, golden=True),
    Case("torchscale_xmoe_top2", "torchscale", dict(use_xmoe=True, moe_top1_expert=False, moe_freq=1,
                                                    share_decoder_input_output_embed=True,
                                                    no_scale_embedding=False), make=torchscale.make),
    Case("mh_moe", "torchscale", torchscale.MH_MOE, make=torchscale.make, golden=True),
    Case("mh_moe_xmoe", "torchscale", dict(torchscale.MH_MOE, use_xmoe=True, moe_top_k=3, partial_rotary_factor=0.5, subln=True,
                                           decoder_attention_heads=4, n_kv_heads=4), make=torchscale.make),
    Case("mh_moe_plain", "torchscale", dict(torchscale.MH_MOE, glu=False, relu_squared=True, activation_fn="relu", no_bias=False,
                                            rms_norm=False, moe_top_k=1, moe_freq=1), make=torchscale.make),
    Case("xmoe_megatron", "xmoe_megatron", make=xmoe.make, golden=True),
    Case("xmoe_megatron_topk", "xmoe_megatron", dict(
        use_threshold=False, use_topk=True, expert_interval=1, untie_embeddings_and_output_weights=True,
        bias_gelu_fusion=False, add_bias_linear=False), make=xmoe.make),
    Case("xmoe_megatron_base_rotary", "xmoe_megatron", dict(
        use_threshold=False, use_base_layer=True, add_position_embedding=False, use_rotary_position_embeddings=True,
        rotary_percent=0.5), make=xmoe.make),
    Case("xmoe_megatron_hash", "xmoe_megatron", dict(use_threshold=False, use_hash_layer=True), make=xmoe.make),
    Case("xmoe_fairseq", "xmoe_fairseq", make=xmoe.make, golden=True, vocab_size=xmoe.VOCAB),
    Case("xmoe_fairseq_topk", "xmoe_fairseq", dict(moe_type="topk", expert_interval=1), make=xmoe.make),
    Case("xmoe_fairseq_base", "xmoe_fairseq", dict(moe_type="base", decoder_layers=4), make=xmoe.make),
]


# Widths that are multiples of the groups.
GROUPS = dict(intermediate_size=64)
GPTQ = dict(quant_method="gptq", bits=4, group_size=16, desc_act=True, sym=False, checkpoint_format="gptq")
AWQ = dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm")
FP8 = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic")
BITSANDBYTES = dict(quant_method="bitsandbytes", load_in_4bit=True, load_in_8bit=False)
NF4, FP4 = (dict(BITSANDBYTES, bnb_4bit_quant_type=name) for name in ("nf4", "fp4"))
# Blocks of 64 weights span rows of 96 inputs, and of 40.
BLOCKS_ACROSS = dict(hidden_size=96, intermediate_size=40, num_hidden_layers=1)
W8A8 = packed.compressed("int-quantized", 8, activations=dict(num_bits=8, type="int", dynamic=True, strategy="token"))
INT8 = dict(quant_method="bitsandbytes", load_in_4bit=False, load_in_8bit=True, llm_int8_threshold=6.0)
EIGHT_BITS = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1)
EIGHT_BITS_MOE = dict(hidden_size=128, moe_intermediate_size=128, num_experts=4, num_experts_per_tok=2,
                      norm_topk_prob=True, num_hidden_layers=1)
NVFP4 = dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype="torch.float8_e4m3fn")
MXFP4 = dict(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype="torch.uint8")
# Layers with the checkpoint's codes and float activations; embedding and head in float32.
OWN_CODES = ("--set", "layers.*=:f32", "--set", "embedding=f32", "--set", "head=f32")


def gptq_8(name, group, family="Llama", config=EIGHT_BITS, keeps=("int8_group", 0), golden=False, lowest=1,
           symmetric=True, act_order=False, stored_less=1, checkpoint_format="gptq", **sizes):
    """An eight-bit GPTQ case. lowest=1 leaves out code 0, which is -128 and does not exist in our int8."""
    says = dict(quant_method="gptq", bits=8, group_size=group, sym=symmetric, desc_act=act_order,
                checkpoint_format=checkpoint_format)
    return Case(name, family, dict(config, **sizes), golden=golden, keeps=keeps,
                convert=OWN_CODES if keeps[1] == 0 else ("--weights", "f32"),
                make=packed.make(packed.gptq, says, bits=8, group=max(group, 0), act_order=act_order,
                                 symmetric=symmetric, lowest=lowest, stored_less=stored_less))


CASES += [
    Case("gptq", "Llama", GROUPS, golden=True,
         make=packed.make(packed.gptq, GPTQ, bits=4, group=16, act_order=True)),
    Case("gptq_8_bits", "Llama", GROUPS, make=packed.make(
        packed.gptq, dict(GPTQ, bits=8, group_size=-1), bits=8, group=0, act_order=False)),
    Case("gptq_in_order", "Llama", dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1), golden=True,
         make=packed.make(packed.gptq, dict(GPTQ, group_size=64, desc_act=False, sym=True), bits=4, group=64,
                          act_order=False, symmetric=True)),
    Case("awq", "Qwen2", GROUPS, golden=True, make=packed.make(packed.awq, AWQ, group=32)),
    Case("w4a16", "Qwen3Moe", dict(GROUPS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                   norm_topk_prob=True, num_hidden_layers=1), golden=True, make=packed.make(
        packed.pack_quantized, packed.compressed("pack-quantized", 4, 32, False), bits=4, group=32, symmetric=False)),
    Case("w8a16", "Llama", GROUPS, make=packed.make(
        packed.pack_quantized, packed.compressed("pack-quantized", 8), bits=8, group=0, symmetric=True)),
    Case("w8a8", "Llama", GROUPS, golden=True, make=packed.make(packed.int_quantized, W8A8)),
    Case("nf4", "Llama", BLOCKS_ACROSS, golden=True, make=packed.make(
        packed.bitsandbytes, dict(NF4, bnb_4bit_use_double_quant=True), quant_type="nf4", nested=True)),
    Case("nf4_plain", "Qwen2", GROUPS, make=packed.make(packed.bitsandbytes, NF4, quant_type="nf4", nested=False)),
    Case("nf4_transformers", "Qwen2", BLOCKS_ACROSS, make=packed.make_bitsandbytes(
        packed.whole_4bit, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)),
    Case("nf4_experts", "Qwen3Moe", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64,
                                         hidden_size=64, norm_topk_prob=True, num_hidden_layers=1), make=packed.make(
        packed.bitsandbytes, NF4, quant_type="nf4", nested=True)),
    Case("bnb_fp4", "Llama", GROUPS, golden=True, make=packed.make(
        packed.bitsandbytes, FP4, quant_type="fp4", nested=False)),
    gptq_8("gptq_8", 32, golden=True),
    gptq_8("gptq_8_v2", 64, hidden_size=128, checkpoint_format="gptq_v2", stored_less=0),
    gptq_8("gptq_8_group_128", 128, family="Qwen3Moe", config=EIGHT_BITS_MOE, hidden_size=256,
           moe_intermediate_size=256),
    gptq_8("gptq_8_row", -1, keeps=("int8", 0), intermediate_size=136),
    gptq_8("gptq_8_lowest_code", 64, hidden_size=128, lowest=0, keeps=("int8_group", 0.002)),
    gptq_8("gptq_8_asymmetric", 64, hidden_size=128, symmetric=False, lowest=0, keeps=("int8_group", 0.005)),
    gptq_8("gptq_8_act_order", 32, act_order=True, keeps=("int8_group", 0.006)),
    Case("w8a16_group", "Llama", EIGHT_BITS, golden=True, keeps=("int8_group", 0.004), make=packed.package(
        "pack-quantized", strategy="group", group_size=32)),
    Case("w8a16_asymmetric", "Llama", dict(EIGHT_BITS, hidden_size=128), keeps=("int8_group", 0.005), make=packed.package(
        "pack-quantized", symmetric=False, strategy="group", group_size=64)),
    Case("w8a16_channel", "Qwen2", EIGHT_BITS, keeps=("int8", 0.004), make=packed.package(
        "pack-quantized", strategy="channel")),
    Case("w8a8_tensor", "Llama", EIGHT_BITS, golden=True, keeps=("int8", 0.001), make=packed.package(
        "int-quantized", strategy="tensor")),
    Case("w8a8_tensor_asymmetric", "Qwen2", EIGHT_BITS, make=packed.package(
        "int-quantized", strategy="tensor", symmetric=False)),
    Case("w4a16_channel", "Llama", EIGHT_BITS, keeps=("int4", 1 / 1024), make=packed.package(
        "pack-quantized", num_bits=4, strategy="channel")),
    Case("w4a16_channel_asymmetric", "Qwen2", EIGHT_BITS, keeps=("int4_min", 1 / 1024), make=packed.package(
        "pack-quantized", num_bits=4, strategy="channel", symmetric=False)),
    Case("w4a16_groups_of_128", "Qwen3Moe", EIGHT_BITS_MOE, keeps=("int4_min", 1 / 1024), make=packed.package(
        "pack-quantized", num_bits=4, strategy="group", group_size=128, symmetric=False)),
    Case("w4a16_groups_of_16", "Llama", EIGHT_BITS, keeps=("int8", 0.01, "int8_group"), make=packed.package(
        "pack-quantized", num_bits=4, strategy="group", group_size=16)),
    Case("nvfp4", "Llama", EIGHT_BITS, golden=True, keeps=("int8_group", 0.007), make=packed.package(
        "nvfp4-pack-quantized", **NVFP4)),
    Case("nvfp4_experts", "Qwen3Moe", EIGHT_BITS_MOE, keeps=("int8_group", 0.007), make=packed.package(
        "nvfp4-pack-quantized", **NVFP4)),
    Case("mxfp4", "Llama", EIGHT_BITS, seed=2, golden=True, convert=OWN_CODES, keeps=("fp4", 0), make=packed.package(
        "mxfp4-pack-quantized", **MXFP4)),
    Case("mxfp8", "Llama", EIGHT_BITS, make=packed.package("mxfp8-quantized", **dict(MXFP4, num_bits=8))),
    Case("fp8_tensor", "Qwen2", EIGHT_BITS, make=packed.package("float-quantized", type="float", strategy="tensor")),
    Case("fp8_block", "Llama", EIGHT_BITS, seed=2, make=packed.package(
        "naive-quantized", type="float", strategy="block", block_structure=[32, 16])),
    Case("nvfp4_and_fp8", "Qwen3Moe", EIGHT_BITS_MOE, make=packed.package_mixed(
        self_attn=dict(form="float-quantized", type="float", strategy="channel"),
        mlp=dict(form="nvfp4-pack-quantized", **NVFP4))),
    Case("modelopt_nvfp4", "Qwen3Moe", EIGHT_BITS_MOE, keeps=("int8_group", 0.007), make=packed.make_modelopt(
        "NVFP4", packed.modelopt_nvfp4)),
    Case("modelopt_fp8", "Llama", EIGHT_BITS, make=packed.make_modelopt(
        "FP8", packed.fp8, file="config.json", block=(0, 0), scales="weight_scale", axes=0, inputs="input_scale")),
    Case("fp8_fused", "Qwen3Moe", dict(EIGHT_BITS_MOE, hidden_size=64, moe_intermediate_size=48), golden=True,
         make=packed.make_fp8_transformers(weight_block_size=(16, 8))),
    Case("fp8_fused_one_scale", "Mixtral", dict(hidden_size=64, intermediate_size=96, num_local_experts=4,
                                                num_hidden_layers=1), make=packed.make_fp8_transformers(
        weight_block_size=None)),
    Case("fp8_fused_powers_of_two", "Mixtral", dict(hidden_size=64, intermediate_size=96, num_local_experts=4,
                                                    num_hidden_layers=1), make=packed.make_fp8_transformers(
        weight_block_size=(32, 32), scale_fmt="ue8m0")),
    Case("llm_int8", "Llama", dict(EIGHT_BITS, intermediate_size=72), golden=True, convert=OWN_CODES, keeps=("int8", 0),
         make=packed.make(packed.llm_int8, INT8)),
    Case("llm_int8_transformers", "Qwen2", BLOCKS_ACROSS, seed=2, convert=OWN_CODES, keeps=("int8", 0),
         make=packed.make_bitsandbytes(packed.whole_8bit, load_in_8bit=True)),
    Case("llm_int8_experts", "Qwen3Moe", EIGHT_BITS_MOE, convert=OWN_CODES, keeps=("int8", 0),
         make=packed.make(packed.llm_int8, INT8)),
    Case("deepseek_v3_fp8", "DeepseekV3", DEEPSEEK_V3, seed=2, golden=True, make=packed.make(
        packed.fp8, dict(FP8, weight_block_size=[16, 24]), block=(16, 24))),
    Case("deepseek_v3_fp8_blocks_of_128", "DeepseekV3", dict(
        DEEPSEEK_V3, hidden_size=144, intermediate_size=300, moe_intermediate_size=136, kv_lora_rank=136),
        make=packed.make(packed.fp8, dict(FP8, weight_block_size=[128, 128]), block=(128, 128))),
    Case("glm4_moe_lite_fp8", "Glm4MoeLite", GLM4_LITE, make=packed.make(
        packed.fp8, dict(FP8, weight_block_size=[16, 24]), block=(16, 24))),
    Case("minimax_m2_fp8", "MiniMaxM2", MINIMAX, make=packed.make(
        packed.fp8, dict(FP8, weight_block_size=[16, 8], modules_to_not_convert=["gate", "e_score_correction_bias",
                                                                                "lm_head"]), block=(16, 8))),
    Case("llama_fp8_one_scale", "Llama", make=packed.make(
        packed.fp8, dict(quant_method="fp8", activation_scheme="static"), block=(0, 0), scales="weight_scale", axes=0,
        inputs="input_scale")),
    Case("llama_fp8_channels", "Llama", make=packed.make(
        packed.fp8, packed.compressed_fp8("channel"), block=(1, 0), scales="weight_scale")),
]

# Files of mixed types, which together contain every type.
BLOCKS = dict(hidden_size=256, intermediate_size=512, moe_intermediate_size=256, head_dim=64)
Q4_K_M = ["Q4_K", "Q6_K", "Q5_K", "Q4_K"]
OF_32 = ["Q4_0", "IQ4_NL", "MXFP4", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
OF_256 = ["Q3_K", "IQ4_XS", "Q2_K", "Q5_K", "Q6_K", "Q4_K"]

CASES += [
    gguf_case("qwen3_q4_k_m", "Qwen3", Q4_K_M, BLOCKS, "gpt2", "gpt-2"),
    gguf_case("qwen3_moe_q4_k_m", "Qwen3Moe", Q4_K_M, dict(QWEN_MOE, **BLOCKS, norm_topk_prob=True)),
    gguf_case("qwen3_moe_types_of_32", "Qwen3Moe", OF_32, dict(QWEN_MOE, **dict(BLOCKS, hidden_size=128,
                                                                                moe_intermediate_size=96), norm_topk_prob=True)),
    gguf_case("qwen3_moe_types_of_256", "Qwen3Moe", OF_256, dict(QWEN_MOE, **BLOCKS, norm_topk_prob=True)),
    gguf_case("olmoe_types_of_256", "Olmoe", OF_256, dict(MOE, hidden_size=256, intermediate_size=256)),
    gguf_case("qwen2_types_of_32", "Qwen2", OF_32, dict(hidden_size=64, intermediate_size=96)),
    gguf_case("llama", "Llama", "f32", dict(ODD)),
    gguf_case("llama_biases", "Llama", "bf16", dict(attention_bias=True)),
    gguf_case("llama3", "Llama", "bf16", dict(rope_parameters=LLAMA3), "llama3", "llama-bpe", golden=True),
    gguf_case("mixtral", "Mixtral", "f16", LOCAL, seed=2),
    gguf_case("qwen2", "Qwen2", "bf16", dict(tie_word_embeddings=True), "qwen2", "qwen2"),
    gguf_case("qwen3_yarn", "Qwen3", "bf16", dict(head_dim=16, rope_parameters=YARN), "gpt2", "gpt-2"),
    gguf_case("qwen3_q8_0", "Qwen3", "q8_0", dict(hidden_size=64, head_dim=16, intermediate_size=96), golden=True),
    gguf_case("qwen2_moe", "Qwen2Moe", "bf16", dict(QWEN_MOE, shared_expert_intermediate_size=28)),
    gguf_case("qwen3_moe", "Qwen3Moe", "bf16", dict(QWEN_MOE, head_dim=16, norm_topk_prob=True)),
    gguf_case("olmo2", "Olmo2", "bf16"),
    gguf_case("olmo3", "Olmo3", "bf16", OLMO3),
    gguf_case("olmo3_yarn", "Olmo3", "bf16", dict(OLMO3, rope_parameters=OLMO3_YARN)),
    gguf_case("smollm3", "SmolLM3", "bf16", dict(num_hidden_layers=5, intermediate_size=20)),
    gguf_case("minimax_m2", "MiniMaxM2", "bf16", MINIMAX, inner=make_minimax_published),
    gguf_case("olmoe", "Olmoe", "bf16", MOE),
    gguf_case("granite", "Granite", "bf16", dict(GRANITE)),
    gguf_case("granitemoe", "GraniteMoe", "bf16", dict(GRANITE, **LOCAL, tie_word_embeddings=True)),
    gguf_case("gpt_oss", "GptOss", "bf16", GPT_OSS, "o200k", "gpt-4o"),
    gguf_case("gpt_oss_mxfp4", "GptOss", "bf16", inner=quantised.make_mxfp4),
    gguf_case("phi3", "Phi3", "bf16", dict(original_max_position_embeddings=128)),
    gguf_case("phi3_longrope", "Phi3", "bf16", PHI3_LONG, inner=make_longrope, golden=True),
    gguf_case("lfm2", "Lfm2", "bf16", LFM2, golden=True),
    gguf_case("lfm2_untied", "Lfm2", "bf16", dict(LFM2, tie_word_embeddings=False, conv_L_cache=4)),
    gguf_case("lfm2_moe", "Lfm2Moe", "bf16", dict(LFM2_MOE, routed_scaling_factor=1.0)),
    gguf_case("lfm2_moe_q8_0", "Lfm2Moe", "q8_0", dict(LFM2_MOE, routed_scaling_factor=1.0, hidden_size=64, head_dim=16,
                                                       intermediate_size=96, moe_intermediate_size=32)),
    gguf_case("glm4_moe", "Glm4Moe", "bf16", dict(GLM4, attention_bias=True)),
    gguf_case("glm4_moe_qk_norm", "Glm4Moe", "bf16", dict(GLM4, use_qk_norm=True, norm_topk_prob=False), golden=True),
    gguf_case("glm4_moe_prediction", "Glm4Moe", "bf16", dict(GLM4, attention_bias=True), inner=with_guesses(make_transformers)),
    gguf_case("glm4_moe_lite", "Glm4MoeLite", "bf16", dict(GLM4_LITE), inner=make_published_glm4_lite),
    gguf_case("glm4_moe_lite_prediction", "Glm4MoeLite", "bf16", dict(GLM4_LITE), inner=with_guesses(make_published_glm4_lite)),
    gguf_case("sarvam_moe", "SarvamMoE", "bf16", SARVAM, inner=make_sarvam_published),
    gguf_case("bailing_moe_v2", "SarvamMoE", "bf16", dict(LING2, n_shared_experts=2), inner=make_ling2, golden=True),
    gguf_case("bailing_moe", "GraniteMoeShared", "bf16", LING1, inner=make_ling1),
    gguf_case("bailing_moe_norm_head", "GraniteMoeShared", "f32", dict(LING1), inner=make_ling1),
    gguf_case("gemma", "Gemma", "bf16", dict(head_dim=16, num_key_value_heads=1, vocab_size=381), "gpt2", "gpt-2"),
    gguf_case("gemma2", "Gemma2", "bf16", dict(GEMMA2, query_pre_attn_scalar=16, vocab_size=381), "gpt2", "gpt-2"),
    gguf_case("gemma3", "Gemma3Text", "bf16", dict(GEMMA3, query_pre_attn_scalar=16, num_hidden_layers=7,
                                                  layer_types=None, vocab_size=381), "gpt2", "gpt-2",
              tolerance=3e-3, tolerance_kv16=1e-3),  # seven layers, so that one of them has full attention
    gguf_case("gemma4", "Gemma4Text", "bf16", dict(GEMMA4, **GEMMA4_K_EQ_V, vocab_size=381), "gpt2", "gpt-2"),
    gguf_case("gemma4_e", "Gemma4Text", "f32", dict(GEMMA4_E, vocab_size=381, vocab_size_per_layer_input=381), "gpt2", "gpt-2"),
    gguf_case("gemma4_moe", "Gemma4Text", "bf16", dict(GEMMA4, **GEMMA4_K_EQ_V, **GEMMA4_EXPERTS, vocab_size=381), "gpt2", "gpt-2"),
    gguf_case("gemma4_moe_odd", "Gemma4Text", "f32", {
        **GEMMA4_E, **ODD, **GEMMA4_EXPERTS, "vocab_size": 381, "vocab_size_per_layer_input": 381, "global_head_dim": 24,
        "num_kv_shared_layers": 2, "attention_k_eq_v": True, "use_double_wide_mlp": False, "final_logit_softcapping": None,
        "rope_parameters": dict(full_attention=dict(rope_type="proportional", partial_rotary_factor=0.3, rope_theta=5e5),
                                sliding_attention=dict(rope_type="default", rope_theta=2e4))}, "gpt2", "gpt-2",
              tolerance_kv16=1e-3),
    gguf_case("gemma4_q8_0", "Gemma4Text", "q8_0", dict(
        GEMMA4, **GEMMA4_K_EQ_V, hidden_size=64, intermediate_size=96, head_dim=32, global_head_dim=64, vocab_size=381), "gpt2", "gpt-2"),
    gguf_case("gemma4_small", "Gemma4Text", "bf16", {
        **GEMMA4_E, **GEMMA4_EXPERTS, "hidden_size": 16, "intermediate_size": 12, "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_experts": 4, "moe_intermediate_size": 8, "vocab_size": 381, "vocab_size_per_layer_input": 381, "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2, "head_dim": 4, "global_head_dim": 8,
        "hidden_size_per_layer_input": 4}, "gpt2", "gpt-2", golden=True),
    gguf_case("phimoe", "Phimoe", "f32", dict(LOCAL, original_max_position_embeddings=128, attention_bias=True,
                                              lm_head_bias=True), inner=make_phimoe),
    gguf_case("phimoe_longrope", "Phimoe", "bf16", dict(PHI_LONG, **TINY), inner=make_phimoe, golden=True),
    gguf_case("deepseek_v2", "DeepseekV2", "f32", dict(DEEPSEEK, v_head_dim=14, routed_scaling_factor=2.5,
                                                       n_group=1, topk_group=1, scoring_func="softmax",
                                                       rope_parameters=dict(DEEPSEEK_YARN, mscale=0.8))),
    gguf_case("deepseek_v3", "DeepseekV3", "bf16", dict(DEEPSEEK_V3, rope_parameters=dict(DEEPSEEK_YARN, mscale=1.0,
                                                                                         mscale_all_dim=1.0)),
              inner=make_published_v3),
    gguf_case("deepseek_v2_odd", "DeepseekV2", "bf16", dict(DEEPSEEK, num_hidden_layers=3, hidden_size=36,
                                                            num_attention_heads=3, num_key_value_heads=3,
                                                            kv_lora_rank=14, qk_nope_head_dim=6, qk_rope_head_dim=6,
                                                            v_head_dim=5, first_k_dense_replace=2, n_shared_experts=1,
                                                            tie_word_embeddings=True)),
    gguf_case("deepseek_v2_small", "DeepseekV2", "bf16", dict(
        DEEPSEEK, vocab_size=48, hidden_size=16, num_attention_heads=2, num_key_value_heads=2, intermediate_size=12,
        kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, n_routed_experts=4,
        moe_intermediate_size=8, rope_parameters=dict(DEEPSEEK_YARN, mscale=0.8)), golden=True),
    gguf_case("bitnet", "BitNet", "f32", inner=quantised.make_one_bit, convert=A8["convert"],
              tolerance=A8["tolerance"], tolerance_kv16=A8["tolerance_kv16"]),
    gguf_case("bitnet_2b", "BitNet", "f32", inner=quantised.make_bitnet_first_names,
              arch="bitnet-b1.58", convert=A8["convert"], tolerance=A8["tolerance"],
              tolerance_kv16=A8["tolerance_kv16"]),
    gguf_case("maple", "Maple", "bf16", inner=maple.make, convert=TERNARY, lossless=True),
    gguf_case("bonsai_q2_0", "Qwen3", "q2_0", inner=quantised.make_bonsai, convert=TERNARY, lossless=True,
              golden=True),
    gguf_case("bonsai_pq2_0", "Qwen3", "pq2_0", inner=quantised.make_bonsai, convert=TERNARY, lossless=True),
    gguf_case("bonsai_ptq1_0", "Qwen3", "ptq1_0", inner=quantised.make_bonsai, convert=TERNARY, lossless=True),
    gguf_case("bonsai_q1_0", "Qwen3", "q1_0", inner=quantised.make_binary, convert=TERNARY, lossless=True),
    gguf_case("ternary_tq1_0", "Qwen3", "tq1_0", inner=quantised.make_ternary256, convert=TIED_TERNARY, lossless=True,
              golden=True),
    gguf_case("ternary_tq2_0", "Qwen3", "tq2_0", inner=quantised.make_ternary256, convert=TIED_TERNARY, lossless=True,
              golden=True),
    *gguf_hybrids.CASES,
    *gguf_by_hand.CASES,
]
