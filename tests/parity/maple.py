# SPDX-License-Identifier: MIT
"""Maple in PyTorch, written from its description, since transformers does not have this model.

A pre-norm decoder. Attention has a norm on each head of q and k. Sliding-window layers rotate the first half
of each head, and a query sees itself and the `sliding_window` positions before it; the other layers have no
positions. Every layer has experts with a clamped SwiGLU, chosen by a softmax over all of them, whose weights
are normalised to sum to 1. Every linear weight is -s, 0 or s, with one s per output row.
"""

import json
import os

import torch
from safetensors.torch import save_file

CONFIG = dict(architectures=["MapleForCausalLM"], dtype="bfloat16", bos_token_id=1, eos_token_id=2, head_dim=16,
              hidden_act="silu", hidden_size=32, max_position_embeddings=128, moe_intermediate_size=20,
              norm_topk_prob=True, num_attention_heads=4, num_experts=6, num_experts_per_tok=2,
              num_hidden_layers=4, num_key_value_heads=2, num_shared_experts=0, partial_rotary_factor=0.5,
              rms_norm_eps=1e-6, rope_scaling=None, rope_theta=10000.0, sliding_window=6,
              layer_types=["sliding_attention"] * 3 + ["full_attention"], tie_word_embeddings=False,
              use_bias=False, use_qk_norm=True, nope_on_global_attention=True, vocab_size=96, intermediate_size=1,
              quantize=True, preaffine=False)
SWIGLU_LIMIT = 7.0


def ternary(g, rows, cols):
    codes = torch.randint(-1, 2, (rows, cols), generator=g).float()
    scale = (0.5 + torch.rand(rows, 1, generator=g)) * 2.0 / cols**0.5
    return codes * scale.bfloat16().float()


def make_tensors(c, seed):
    g = torch.Generator().manual_seed(seed)
    d, hd, f = c["hidden_size"], c["head_dim"], c["moe_intermediate_size"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd

    def normal(*shape, scale=1.0, mean=0.0):
        return (mean + scale * torch.randn(*shape, generator=g)).bfloat16().float()

    t = {"model.word_embeddings.weight": normal(c["vocab_size"], d, scale=0.7),
         "lm_head.weight": normal(c["vocab_size"], d, scale=1.3 / d**0.5),
         "model.norm.weight": normal(d, scale=0.2, mean=1)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            t[p + name + ".weight"] = normal(d, scale=0.2, mean=1)
        for name in ("q_norm", "k_norm"):
            t[p + f"self_attn.{name}.weight"] = normal(hd, scale=0.2, mean=1)
        for name, rows, cols in (("q", q, d), ("k", kv, d), ("v", kv, d), ("o", d, q)):
            t[p + f"self_attn.{name}_proj.weight"] = ternary(g, rows, cols) / 2
        t[p + "mlp.gate.weight"] = normal(c["num_experts"], d, scale=1.3 / d**0.5)
        for e in range(c["num_experts"]):
            # These gates are large enough to be clamped.
            t[p + f"mlp.experts.{e}.gate_proj.weight"] = ternary(g, f, d) * 4
            t[p + f"mlp.experts.{e}.up_proj.weight"] = ternary(g, f, d) * 2
            t[p + f"mlp.experts.{e}.down_proj.weight"] = ternary(g, d, f) / 4
    return t


class Maple:
    def __init__(self, config, tensors):
        self.c, self.t = config, tensors

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.t[name]

    def rotate(self, x):
        """x: (heads, tokens, head_dim); pairs (j, j + half) of the first dims."""
        dims = int(self.c["head_dim"] * self.c["partial_rotary_factor"])
        half = dims // 2
        frequency = self.c["rope_theta"] ** (-torch.arange(half) / half)
        angle = torch.arange(x.shape[1])[:, None] * frequency
        a, b, rest = x[..., :half], x[..., half:dims], x[..., dims:]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def attention(self, x, layer, kv16):
        c, p = self.c, f"model.layers.{layer}.self_attn."
        n, hd = x.shape[0], c["head_dim"]

        def heads(name, norm=None):
            y = (x @ self.t[p + name + "_proj.weight"].T).view(n, -1, hd).transpose(0, 1)
            return self.norm(y, p + norm + ".weight") if norm else y

        q, k, v = heads("q", "q_norm"), heads("k", "k_norm"), heads("v")
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        seen = j <= i
        if c["layer_types"][layer] == "sliding_attention":
            q, k = self.rotate(q), self.rotate(k)
            seen = seen & (i - j <= c["sliding_window"])
        if kv16:
            k, v = k.half().float(), v.half().float()
        groups = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0)
        scores = (q @ k.transpose(1, 2) / hd**0.5).masked_fill(~seen, -torch.inf)
        y = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)
        return y @ self.t[p + "o_proj.weight"].T

    def experts(self, x, layer):
        c, p = self.c, f"model.layers.{layer}.mlp."
        weights, chosen = (x @ self.t[p + "gate.weight"].T).softmax(-1).topk(c["num_experts_per_tok"])
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        y = torch.zeros_like(x)
        for row in range(x.shape[0]):
            for weight, e in zip(weights[row], chosen[row]):
                m = p + f"experts.{int(e)}."
                gate = (self.t[m + "gate_proj.weight"] @ x[row]).clamp(max=SWIGLU_LIMIT)
                up = (self.t[m + "up_proj.weight"] @ x[row]).clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)
                y[row] += weight * (self.t[m + "down_proj.weight"] @ (gate * gate.sigmoid() * up))
        return y

    def __call__(self, ids, kv16):
        x = self.t["model.word_embeddings.weight"][torch.tensor(ids)]
        for layer in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, p + "input_layernorm.weight"), layer, kv16)
            x = x + self.experts(self.norm(x, p + "post_attention_layernorm.weight"), layer)
        return self.norm(x, "model.norm.weight") @ self.t["lm_head.weight"].T


def make(case, folder):
    config = {**CONFIG, **case.config}
    tensors = make_tensors(config, case.seed)
    save_file({k: v.bfloat16() for k, v in tensors.items()}, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    return Maple(config, tensors)
