# SPDX-License-Identifier: MIT
"""Decoders of torchscale in PyTorch, written from its description, since the package needs fairscale.

A pre-norm LayerNorm decoder with learned positions (row 2 is that of the first token), biases everywhere, and
with `subln` a norm before both output projections. Every moe_freq-th layer has experts, with a linear gate or
X-MoE's (Chi et al. 2022), which compares a projection of the token, not normalised, with normalised expert
embeddings. A single expert is weighted by its softmax probability; the weights of two sum to 1. With
moe_top_k the decoder is that of MH-MoE's repository (Huang et al. 2024): k experts weighted by their
probabilities as they are, which split a token into mhmoe_heads_number sub-tokens between two linear layers; RMS
norms, rotary positions, gated networks without biases, fewer heads for keys and values. Experts have no capacity limit.
"""

import json
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

CONFIG = dict(model_type="torchscale", vocab_size=96, decoder_embed_dim=32, decoder_attention_heads=4,
              decoder_ffn_embed_dim=40, decoder_layers=2, decoder_normalize_before=True, activation_fn="gelu",
              subln=True, moe_freq=2, moe_expert_count=4, moe_top1_expert=True, use_xmoe=False,
              share_decoder_input_output_embed=False, layernorm_embedding=False, no_scale_embedding=True,
              dropout=0.1, rel_pos_buckets=0)
MH_MOE = dict(moe_top_k=2, mhmoe_heads_number=4, moe_top1_expert=False, rms_norm=True, rotary_embed=True,
              partial_rotary_factor=1.0, no_bias=True, glu=True, activation_fn="silu", subln=False, n_kv_heads=2,
              moe_ffn_dim=24, layernorm_eps=1e-6, weight_bits=32, input_bits=32, input_quant_method="absmax_per_token",
              max_target_positions=128, share_decoder_input_output_embed=True)
N_POSITIONS = 130


def make_tensors(c, seed):
    g = torch.Generator().manual_seed(seed)
    d, f, t = c["decoder_embed_dim"], c["decoder_ffn_embed_dim"], {}

    def put(name, *shape, scale=1.0, mean=0.0):
        t[name] = (mean + scale * torch.randn(*shape, generator=g)).bfloat16().float()

    def linear(name, rows, cols, bias=True):
        put(name + ".weight", rows, cols, scale=1.3 / cols**0.5)
        if bias:
            put(name + ".bias", rows, scale=0.2)

    def norm(name, n):
        put(name + ".weight", n, scale=0.2, mean=1)
        if not c.get("rms_norm"):
            put(name + ".bias", n, scale=0.2)

    biases = not c.get("no_bias")

    def ffn(name, width, f=f):
        linear(name + ".fc1", f, width, biases)
        linear(name + ".fc2", width, f, biases)
        if c.get("glu"):
            linear(name + ".fc3", f, width, biases)
        if c["subln"]:
            norm(name + ".ffn_layernorm", f)

    put("decoder.embed_tokens.weight", c["vocab_size"], d, scale=0.7)
    if not c.get("rotary_embed"):
        put("decoder.embed_positions.weight", N_POSITIONS, d, scale=0.3)
    norm("decoder.layer_norm", d)
    if c["layernorm_embedding"]:
        norm("decoder.layernorm_embedding", d)
    if not c["share_decoder_input_output_embed"]:
        linear("decoder.output_projection", c["vocab_size"], d, bias=False)
    for i in range(c["decoder_layers"]):
        p = f"decoder.layers.{i}."
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            norm(p + name, d)
        kv = d // c["decoder_attention_heads"] * c.get("n_kv_heads", c["decoder_attention_heads"])
        for name, rows in (("q_proj", d), ("k_proj", kv), ("v_proj", kv), ("out_proj", d)):
            linear(p + "self_attn." + name, rows, d, biases)
        if c.get("rotary_embed"):
            put(p + "self_attn.rotary_emb.inv_freq", 4)  # a buffer
        if c["subln"]:
            norm(p + "self_attn.inner_attn_ln", d)
        if (i + 1) % c["moe_freq"]:
            ffn(p + "ffn", d)
            continue
        heads = c.get("mhmoe_heads_number", 1)
        width, p = d // heads, p + "moe_layer."
        if heads > 1:
            linear(p + "multi_heads", d, d)
            linear(p + "out_proj", d, d)
        if c["use_xmoe"]:
            linear(p + "gate.wg_reduction", 16, width, bias=False)
            put(p + "gate.wg", c["moe_expert_count"], 16)
        else:
            linear(p + "gate.wg", c["moe_expert_count"], width, bias=False)
        for e in range(c["moe_expert_count"]):
            ffn(p + f"experts.{e}", width, c.get("moe_ffn_dim", f))
    return t


class Torchscale:
    def __init__(self, config, tensors):
        self.c, self.t = config, tensors

    def linear(self, x, name):
        return F.linear(x, self.t[name + ".weight"], self.t.get(name + ".bias"))

    def norm(self, x, name):
        eps = self.c.get("layernorm_eps", 1e-5)
        if self.c.get("rms_norm"):
            return F.rms_norm(x, x.shape[-1:], self.t[name + ".weight"], eps)
        return F.layer_norm(x, x.shape[-1:], self.t[name + ".weight"], self.t[name + ".bias"], eps)

    def ffn(self, x, name):
        act = {"gelu": F.gelu, "silu": F.silu, "relu": F.relu}[self.c["activation_fn"]]
        if self.c.get("relu_squared"):
            act = lambda z: F.relu(z) ** 2
        up = self.linear(x, name + ".fc1")
        x = up * act(self.linear(x, name + ".fc3")) if self.c.get("glu") else act(up)
        if self.c["subln"]:
            x = self.norm(x, name + ".ffn_layernorm")
        return self.linear(x, name + ".fc2")

    def rotated(self, z):
        """Rotates the first dimensions of z (heads, n, width) as two halves."""
        dims = int(self.c["partial_rotary_factor"] * z.shape[-1])
        angles = torch.arange(z.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, dims, 2) / dims)
        cos, sin = angles.cos(), angles.sin()
        a, b, rest = z[..., : dims // 2], z[..., dims // 2 : dims], z[..., dims:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)

    def attention(self, x, p, kv16):
        n, heads = x.shape[0], self.c["decoder_attention_heads"]
        width = x.shape[1] // heads
        q, k, v = (self.linear(x, p + name).view(n, -1, width).transpose(0, 1)
                   for name in ("q_proj", "k_proj", "v_proj"))
        if self.c.get("rotary_embed"):
            q, k = self.rotated(q), self.rotated(k)
        k, v = (z.repeat_interleave(heads // len(z), 0) for z in (k, v))
        if kv16:
            k, v = k.half().float(), v.half().float()
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(future, -torch.inf)
        y = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)
        return self.linear(self.norm(y, p + "inner_attn_ln") if self.c["subln"] else y, p + "out_proj")

    def scores(self, x, p):
        if not self.c["use_xmoe"]:
            return self.linear(x, p + "gate.wg")
        experts = self.t[p + "gate.wg"]
        return self.linear(x, p + "gate.wg_reduction") @ (experts / experts.norm(dim=1, keepdim=True)).T

    def experts(self, x, p):
        heads = self.c.get("mhmoe_heads_number", 1)
        whole = x.shape
        if heads > 1:
            x = self.linear(x, p + "multi_heads").reshape(-1, x.shape[-1] // heads)
        k = self.c.get("moe_top_k") or (1 if self.c["moe_top1_expert"] else 2)
        weights, chosen = self.scores(x, p).softmax(-1).topk(k)
        if not (self.c["moe_top1_expert"] or "moe_top_k" in self.c):
            weights = weights / weights.sum(-1, keepdim=True)
        y = torch.stack([sum(w * self.ffn(row, p + f"experts.{int(e)}") for w, e in zip(ws, es))
                         for row, ws, es in zip(x, weights, chosen)])
        return self.linear(y.reshape(whole), p + "out_proj") if heads > 1 else y

    def __call__(self, ids, kv16):
        x = self.t["decoder.embed_tokens.weight"][torch.tensor(ids)]
        if not self.c["no_scale_embedding"]:
            x = x * self.c["decoder_embed_dim"] ** 0.5
        if not self.c.get("rotary_embed"):
            x = x + self.t["decoder.embed_positions.weight"][2:2 + len(ids)]
        if self.c["layernorm_embedding"]:
            x = self.norm(x, "decoder.layernorm_embedding")
        for i in range(self.c["decoder_layers"]):
            p = f"decoder.layers.{i}."
            x = x + self.attention(self.norm(x, p + "self_attn_layer_norm"), p + "self_attn.", kv16)
            y = self.norm(x, p + "final_layer_norm")
            x = x + (self.ffn(y, p + "ffn") if (i + 1) % self.c["moe_freq"] else self.experts(y, p + "moe_layer."))
        head = "embed_tokens" if self.c["share_decoder_input_output_embed"] else "output_projection"
        return self.norm(x, "decoder.layer_norm") @ self.t[f"decoder.{head}.weight"].T


def make(case, folder):
    config = {**CONFIG, **case.config}
    tensors = make_tensors(config, case.seed)
    save_file({k: v.bfloat16() for k, v in tensors.items()}, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    return Torchscale(config, tensors)
