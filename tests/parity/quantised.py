# SPDX-License-Identifier: MIT
"""Checkpoints whose weights are already quantised: BitNet, Bonsai's groups, MXFP4."""

import enum
import json
import os

import numpy as np
import torch
import transformers as tr
from safetensors.torch import load_file, save_file
from transformers.integrations.bitnet import ActQuant, AutoBitLinear, BitLinear, pack_weights
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import families


def edit_config(folder, **changes):
    path = os.path.join(folder, "config.json")
    config = {**json.load(open(path)), **changes}
    json.dump({k: v for k, v in config.items() if v != "drop"}, open(path, "w"), indent=2)


def replace_linears(model, make):
    """Replaces each linear module of the layers by make(name, linear)."""
    for name, module in list(model.model.layers.named_modules()):
        if isinstance(module, torch.nn.Linear):
            model.model.layers.set_submodule(name, make("model.layers." + name, module))


def small(case, **config):
    return {**families.SIZES, "intermediate_size": 40, "hidden_act": "relu2", "rms_norm_eps": 1e-5, **config,
            **case.config}


def bitnet_model(case, folder, **config):
    model = families.randomise(tr.BitNetForCausalLM(tr.BitNetConfig(**small(case, **config))), case.seed)
    model.save_pretrained(folder)
    return model


def make_bitnet_online(case, folder):
    """A BitNet whose weights are rounded in every forward pass."""
    model = bitnet_model(case, folder, tie_word_embeddings=True)
    families.to_bfloat16(folder)
    edit_config(folder, quantization_config=dict(quant_method="bitnet", linear_class="autobitlinear",
                                                 quantization_mode="online"))
    quantise_online(model)
    return families.forward(model)


def quantise_online(model):
    def online(_name, linear):
        new = AutoBitLinear(linear.in_features, linear.out_features, bias=False, online_quant=True)
        new.weight = linear.weight
        return new

    replace_linears(model, online)


class NormedBitLinear(torch.nn.Module):
    """A projection of BitNet's embedding models: an RMSNorm of its own, inputs of 8 bits for each token, ternary weights."""

    def __init__(self, linear, eps, seed):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.weight = linear.weight
        self.norm = torch.nn.Module()
        self.norm.weight = torch.nn.Parameter((1 + 0.4 * torch.randn(linear.in_features, generator=g)).bfloat16().float())
        self.eps = eps

    def forward(self, x):
        x = self.norm.weight * (x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt())
        most = x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        codes = (x * (127 / most)).round().clamp(-128, 127)
        mean = self.weight.abs().mean().clamp(min=1e-5)
        return torch.nn.functional.linear(codes, (self.weight / mean).round().clamp(-1, 1)) * (mean * most / 127)


def norm_inputs(model, eps, seed):
    seeds = iter(range(seed * 1000, seed * 1000 + 999))
    replace_linears(model, lambda _name, linear: NormedBitLinear(linear, eps, next(seeds)))


def make_bitnet_embedding(case, folder):
    """BitNet's embedding models, without a head; names with or without the prefix that AutoModel leaves out."""
    config = getattr(tr, case.family + "Config")(**{**families.SIZES, "intermediate_size": 40, "tie_word_embeddings": True,
                                                  **case.config})
    model = families.randomise(tr.AutoModelForCausalLM.from_config(config), case.seed)
    norm_inputs(model, config.rms_norm_eps, case.seed)
    config.save_pretrained(folder)
    prefix = "" if case.layout == "fused" else "model."
    save_file({prefix + name: p.detach().bfloat16().contiguous() for name, p in model.model.named_parameters()},
              os.path.join(folder, "model.safetensors"))
    return families.forward(model)


# BitNet's embedding models in GGUF files, as bitnet.cpp's converter names their tensors.
EMBEDDING_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
EMBEDDING_NORMS = {
    "qwen3": {"post_attention_layernorm": "ffn_norm"},
    "gemma3": {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}}


def embedding_name(name, arch):
    if not name.startswith("layers."):
        return {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[name]
    layer, part = name[len("layers."):].removesuffix(".weight").split(".", 1)
    matrix = part.removesuffix(".norm")
    known = {**EMBEDDING_NAMES, **EMBEDDING_NORMS[arch]}
    return f"blk.{layer}.{known[matrix]}{'_norm_in' if matrix != part else ''}.weight"


def pack_i2_s(w):
    """Codes of 2 bits in blocks of 128 weights: a byte has the weights i, 32 + i, 64 + i and 96 + i; then the scale."""
    mean = np.maximum(np.abs(w).mean(dtype=np.float32), np.float32(1e-5))
    codes = (np.clip(np.round(w / mean), -1, 1) + 1).astype(np.uint8).reshape(-1, 4, 32)
    packed = (codes << np.array([6, 4, 2, 0], np.uint8)[:, None]).sum(1, dtype=np.uint8)
    return np.concatenate([packed.reshape(-1), np.frombuffer(np.float32(mean).tobytes(), np.uint8), np.zeros(28, np.uint8)])


class BitnetTypes(enum.IntEnum):
    I2_S = 36


def make_bitnet_embedding_gguf(arch):
    def make(case, folder):
        import gguf
        reference = make_bitnet_embedding(case, folder)
        gguf.constants.GGML_QUANT_SIZES[BitnetTypes.I2_S] = (128, 32)
        tensors = load_file(os.path.join(folder, "model.safetensors"))
        config = json.load(open(os.path.join(folder, "config.json")))
        writer = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), arch)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_vocab_size(config["vocab_size"])
        for add in (writer.add_rope_dimension_count, writer.add_key_length, writer.add_value_length):
            add(config["head_dim"])
        writer.add_rope_freq_base(10000.0)
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_file_type(40)
        writer.add_pooling_type(gguf.PoolingType.LAST)
        for name, tensor in tensors.items():
            values, stored = tensor.float().numpy(), embedding_name(name.removeprefix("model."), arch)
            if values.ndim == 2 and stored != "token_embd.weight":
                writer.add_tensor(stored, pack_i2_s(values), raw_shape=(values.shape[0], values.shape[1] // 4),
                                  raw_dtype=BitnetTypes.I2_S)
                continue
            if arch == "gemma3" and values.ndim == 1 and not stored.endswith("_norm_in.weight"):
                values = values + 1
            writer.add_tensor(stored, values.astype(np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        for name in os.listdir(folder):
            if name != "model.gguf":
                os.remove(os.path.join(folder, name))
        return reference

    return make


def make_bitnet_normed(case, folder):
    """BitLinear of transformers with use_rms_norm."""
    model = families.randomise(tr.AutoModelForCausalLM.from_config(getattr(tr, case.family + "Config")(
        **{**families.SIZES, "intermediate_size": 40, **case.config})), case.seed)
    g = torch.Generator().manual_seed(case.seed)

    def normed(_name, linear):
        new = AutoBitLinear(linear.in_features, linear.out_features, bias=False, online_quant=True, use_rms_norm=True,
                            rms_norm_eps=case.config["rms_norm_eps"])
        new.weight = linear.weight
        new.rms_norm.weight.data = (1 + 0.4 * torch.randn(linear.in_features, generator=g)).bfloat16().float()
        return new

    replace_linears(model, normed)
    model.save_pretrained(folder)
    families.to_bfloat16(folder)
    edit_config(folder, quantization_config=dict(
        quant_method="bitnet", linear_class="autobitlinear", quantization_mode="online", use_rms_norm=True,
        rms_norm_eps=case.config["rms_norm_eps"]))
    return families.forward(model)


def make_bitnet_packed(linear_class):
    def make(case, folder):
        model = bitnet_model(case, folder, tie_word_embeddings=True)
        tensors = load_file(os.path.join(folder, "model.safetensors"))
        auto = linear_class == "autobitlinear"

        def packed(name, linear):
            w = linear.weight.detach()
            gamma = w.abs().mean()
            codes = (w / gamma).round().clamp(-1, 1)
            scale = (gamma if auto else 1 / gamma).bfloat16().view(1)
            tensors[name + ".weight"] = pack_weights(codes.clone())
            tensors[name + ".weight_scale"] = scale
            if auto:
                new = AutoBitLinear(linear.in_features, linear.out_features, bias=False)
                new.weight = torch.nn.Parameter(codes)
            else:
                new = BitLinear(linear.in_features, linear.out_features, bias=False, dtype=torch.float32)
                new.weight = pack_weights(codes.clone())
            new.weight_scale = scale.float()
            return new

        replace_linears(model, packed)
        save_file({k: v if v.dtype == torch.uint8 else v.bfloat16() for k, v in tensors.items()},
                  os.path.join(folder, "model.safetensors"))
        config = dict(quant_method="bitnet")
        if auto:  # the default is bitlinear
            config |= dict(linear_class="autobitlinear", quantization_mode="offline")
        edit_config(folder, quantization_config=config)
        return families.forward(model)

    return make


def ternary(w):
    """Codes and absmean scale."""
    gamma = w.detach().abs().mean()
    return (w.detach() / gamma).round().clamp(-1, 1), gamma


def quantise_experts_inputs(experts, scales):
    """Experts as linear layers of BitNet: each rounds its inputs to 8 bits; `scales` of gate and up, and down, by expert."""
    def forward(hidden, chosen, weights):
        out = torch.zeros_like(hidden)
        for e in range(experts.gate_up_proj.shape[0]):
            token, rank = torch.where(chosen == e)
            linear = torch.nn.functional.linear
            x = ActQuant.apply(hidden[token])
            gate, up = linear(x, experts.gate_up_proj[e]).chunk(2, dim=-1)
            gate, up, down = gate * scales[e]["gate"], up * scales[e]["up"], scales[e]["down"]
            y = linear(ActQuant.apply(experts.act_fn(gate) * up), experts.down_proj[e]) * down
            out.index_add_(0, token, y * weights[token, rank, None])
        return out

    experts.forward = forward


def make_bitnet_family(linear_class, keep=()):
    """A family of transformers with packed linear layers. Experts, which transformers 5 keeps in one tensor, are packed one by one."""
    def make(case, folder):
        config = getattr(tr, case.family + "Config")(**{**families.SIZES, "intermediate_size": 40, **case.config})
        model = families.randomise(tr.AutoModelForCausalLM.from_config(config), case.seed)
        model.save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        tensors = {k: v.bfloat16() for k, v in load_file(path).items()}
        auto = linear_class == "autobitlinear"

        def put(name, w):
            codes, gamma = ternary(w)
            scale = (gamma if auto else 1 / gamma).bfloat16().view(1)
            tensors[name + ".weight"] = pack_weights(codes.clone())
            tensors[name + ".weight_scale"] = scale
            return codes, scale.float()

        def linear(name, old):
            if name.endswith(tuple(keep)):
                return old
            codes, scale = put(name, old.weight)
            size = (old.in_features, old.out_features, old.bias is not None)
            new = AutoBitLinear(*size) if auto else BitLinear(*size, dtype=torch.float32)
            new.weight = torch.nn.Parameter(codes) if auto else pack_weights(codes.clone())
            new.weight_scale, new.bias = scale, old.bias
            return new

        replace_linears(model, linear)
        for name, module in model.named_modules():
            if isinstance(getattr(module, "gate_up_proj", None), torch.nn.Parameter):
                pack_experts(name, module, tensors, put, auto)
        save_file(tensors, path)
        edit_config(folder, quantization_config=dict(quant_method="bitnet", linear_class=linear_class,
                                                     quantization_mode="offline",
                                                     modules_to_not_convert=["lm_head", *keep]))
        return families.forward(model)

    return make


def pack_experts(name, experts, tensors, put, auto):
    """Packs the matrices that save_pretrained wrote as NAME.E.PART.weight."""
    layer = name.split(".mlp.")[0].split(".block_sparse_moe.")[0] + "."
    up = next(k for k in tensors if k.startswith(layer) and k.endswith((".experts.0.up_proj.weight", ".experts.0.w3.weight")))
    base = up.rsplit(".", 3)[0]
    parts = dict(gate="w1", up="w3", down="w2") if up.endswith("w3.weight") else dict(
        gate="gate_proj", up="up_proj", down="down_proj")
    scales = []
    with torch.no_grad():
        for e in range(experts.gate_up_proj.shape[0]):
            gate, up = experts.gate_up_proj[e].chunk(2)
            done = {part: put(f"{base}.{e}.{parts[part]}", w)
                    for part, w in (("gate", gate), ("up", up), ("down", experts.down_proj[e]))}
            experts.gate_up_proj[e] = torch.cat([done["gate"][0], done["up"][0]])
            experts.down_proj[e] = done["down"][0]
            scales.append({part: scale if auto else 1 / scale for part, (_, scale) in done.items()})
    quantise_experts_inputs(experts, scales)


def first_names(folder, dtype):
    """Uses 1bitLLM's names for the two additional norms, which llama.cpp's converter supports, and stores tensors as `dtype`."""
    path = os.path.join(folder, "model.safetensors")
    rename = {"attn_sub_norm": "inner_attn_ln", "ffn_sub_norm": "ffn_layernorm"}
    tensors = {}
    for name, tensor in load_file(path).items():
        for old, new in rename.items():
            name = name.replace(old, new)
        tensors[name] = tensor.to(dtype)
    save_file(tensors, path)


def make_bitnet_first_names(case, folder):
    reference = make_bitnet_online(case, folder)
    first_names(folder, torch.float32)
    edit_config(folder, quantization_config="drop")
    return reference


def make_one_bit(case, folder):
    """1bitLLM's layout: model_type llama, with two additional norms and weights rounded in every forward pass."""
    model = bitnet_model(case, folder, hidden_act="silu", tie_word_embeddings=True)
    first_names(folder, torch.float32 if case.gguf else torch.float16)
    edit_config(folder, model_type="llama", architectures=["BitnetForCausalLM"], weight_bits=1, input_bits=8,
                rope_theta=10000.0, rope_parameters="drop", rope_scaling=None, dtype="float32" if case.gguf else "float16")
    model.model.rotary_emb = tr.models.llama.modeling_llama.LlamaRotaryEmbedding(
        tr.LlamaConfig(**small(case)))
    quantise_online(model)
    return families.forward(model)


def make_groups(case, folder, group, scale, zeros=True, **sizes):
    """A Qwen3 whose matrices are ternary, or without zeros binary, with a scale per group of inputs."""
    config = tr.Qwen3Config(**{**families.SIZES, **sizes, **case.config})
    model = families.randomise(tr.Qwen3ForCausalLM(config), case.seed)
    g = torch.Generator().manual_seed(case.seed)
    with torch.no_grad():
        for module in model.model.layers.modules():
            if isinstance(module, torch.nn.Linear):
                rows, cols = module.weight.shape
                codes = torch.randint(-1, 2, (rows, cols // group, group), generator=g).float()
                if not zeros:
                    codes = torch.where(codes == 0, 1.0, codes)
                codes[..., 0] = 1  # GGUF's scale is the largest of its group
                scales = scale((0.5 + torch.rand(rows, cols // group, 1, generator=g)) / cols**0.5)
                module.weight.copy_((codes * scales).view(rows, cols))
    model.save_pretrained(folder)
    if scale is bfloat16:
        families.to_bfloat16(folder)
    return families.forward(model)


def bfloat16(x):
    return x.bfloat16().float()


def both_halves(x):
    """Values that both bfloat16 and float16 represent exactly."""
    return x.bfloat16().half().float()


def make_bonsai(case, folder):
    return make_groups(case, folder, 128, both_halves, hidden_size=128, intermediate_size=256, head_dim=32)


def make_binary(case, folder):
    return make_groups(case, folder, 128, both_halves, zeros=False, hidden_size=128, intermediate_size=256, head_dim=32)


def make_trilm(n_shards):
    """A Llama of TriLM's suite as published, in float16: ternary, with one scale per matrix and shard of its training. Shards
    split the rows of a matrix, and the columns of those whose inputs are split."""
    def make(case, folder):
        config = tr.LlamaConfig(**{**families.SIZES, "intermediate_size": 40, **case.config})
        model = families.randomise(tr.LlamaForCausalLM(config), case.seed)
        with torch.no_grad():
            for name, module in model.model.layers.named_modules():
                if not isinstance(module, torch.nn.Linear):
                    continue
                axis = 1 if name.endswith(("o_proj", "down_proj")) else 0
                shards = [codes * gamma.half().float() for codes, gamma in map(ternary, module.weight.chunk(n_shards, axis))]
                module.weight.copy_(torch.cat(shards, axis))
        model.half().save_pretrained(folder)
        return families.forward(model.float())

    return make


def make_ternary256(case, folder):
    return make_groups(case, folder, 256, both_halves, hidden_size=256, intermediate_size=256, head_dim=64,
                       num_key_value_heads=1, num_hidden_layers=1, tie_word_embeddings=True)


def make_mxfp4(case, folder):
    """gpt-oss in its published format: experts in blocks of 32 FP4 values with a common exponent."""
    config = tr.GptOssConfig(**{**families.SIZES, **families.GPT_OSS, "hidden_size": 64, "intermediate_size": 32,
                                **case.config})
    model = families.randomise(tr.GptOssForCausalLM(config), case.seed)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = {k: v.bfloat16() for k, v in load_file(path).items()}
    g = torch.Generator().manual_seed(case.seed)
    for i, layer in enumerate(model.model.layers):
        for name in ("gate_up_proj", "down_proj"):
            weight = getattr(layer.mlp.experts, name)  # (experts, in, out)
            n, d_in, d_out = weight.shape
            blocks = torch.randint(0, 256, (n, d_out, d_in // 32, 16), generator=g, dtype=torch.uint8)
            scales = torch.randint(121, 125, (n, d_out, d_in // 32), generator=g, dtype=torch.uint8)
            with torch.no_grad():
                weight.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
            key = f"model.layers.{i}.mlp.experts.{name}"
            del tensors[key]
            tensors[key + "_blocks"], tensors[key + "_scales"] = blocks, scales
    save_file(tensors, path)
    edit_config(folder, quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]))
    return families.forward(model)
