# SPDX-License-Identifier: MIT
"""XMoE (Yang et al. 2024) in PyTorch, written to compute what its two training codes compute.

Pre-norm LayerNorm decoders; every expert_interval-th layer has experts instead of its FFN. A threshold router
takes experts in order of probability as long as the sum of the previous ones is below the threshold, weighted by
their probabilities. Top-k takes a fixed number of them, BASE the best one, weighted by the sigmoid of its logit, and
a hash table one per token id. Experts have no capacity limit. Megatron stores q, k and v head by head in one matrix,
and its experts have no output bias; fairseq scales embeddings and has sinusoidal positions.
"""

import json
import math
import os

import torch
import torch.nn.functional as F

import pickles

MEGATRON = dict(model_type="xmoe_megatron", padded_vocab_size=96, hidden_size=32, num_attention_heads=4, kv_channels=8,
                ffn_hidden_size=40, moe_ffn_hidden_size=12, num_layers=2, max_position_embeddings=128,
                layernorm_epsilon=1e-5, normalization="layernorm", mlp_type="standard", num_experts=[6],
                expert_interval=2, topk=2, threshold=0.6, use_threshold=True, use_topk=False, use_base_layer=False,
                use_hash_layer=False, bias_gelu_fusion=True, swiglu=False, add_bias_linear=True,
                add_position_embedding=True, use_rotary_position_embeddings=False, rotary_percent=1.0,
                untie_embeddings_and_output_weights=False, gate_view_num=1, num_experts_switch=None, lr=0.00045,
                moe_eval_capacity_factor=8.0)
FAIRSEQ = dict(model_type="xmoe_fairseq", decoder_embed_dim=32, decoder_attention_heads=4, decoder_ffn_embed_dim=48,
               decoder_layers=2, decoder_normalize_before=True, activation_fn="relu", max_target_positions=130,
               share_decoder_input_output_embed=True, num_experts=6, expert_interval=2, ffn_split_ratio=4, moe_k=2,
               moe_type="threshold", threshold=0.6, no_scale_embedding=False, lr=[0.0005])
VOCAB = 96
TRANSLATOR = dict(FAIRSEQ, encoder_embed_dim=32, encoder_attention_heads=2, encoder_ffn_embed_dim=40, encoder_layers=2,
                  encoder_normalize_before=False, decoder_normalize_before=False, share_all_embeddings=True,
                  encoder_learned_pos=False, decoder_learned_pos=False, max_source_positions=40,
                  max_target_positions=40, no_encoder_moe=False, no_decoder_moe=False, layernorm_embedding=False)


class Weights(dict):
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def put(self, name, *shape, scale=1.0, mean=0.0):
        self[name] = (mean + scale * torch.randn(*shape, generator=self.g)).bfloat16().float()

    def linear(self, name, rows, cols, bias=True):
        self.put(name + ".weight", rows, cols, scale=1.3 / cols**0.5)
        if bias:
            self.put(name + ".bias", rows, scale=0.2)

    def norm(self, name, n):
        self.put(name + ".weight", n, scale=0.2, mean=1)
        self.put(name + ".bias", n, scale=0.2)


class Decoder:
    """Shared by both codes; a subclass names and makes the tensors."""

    def __init__(self, config, seed):
        self.c, self.t = config, Weights(seed)

    def linear(self, x, name, bias=True):
        return F.linear(x, self.t[name + ".weight"], self.t.get(name + ".bias") if bias else None)

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.t[name + ".weight"], self.t[name + ".bias"], 1e-5)

    def attention(self, q, k, v, kv16, causal=True):  # each (heads, n, head_dim)
        if kv16:
            k, v = k.half().float(), v.half().float()
        n = q.shape[1]
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        return (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)

    def choose(self, x, p, token, kind, k):
        """Experts and weights of one token."""
        if kind == "hash":
            return [(int(self.t[p + "gate.hash_bin_map"][token]), 1.0)]
        logits = F.linear(x, self.t[p + "gate.wg.weight"])
        if kind == "base":
            best = int(logits.argmax())
            return [(best, torch.sigmoid(logits[best]))]
        chosen, total = [], 0.0
        for prob, e in zip(*logits.softmax(-1).sort(descending=True)):
            if chosen and (len(chosen) == k if kind == "topk" else total >= self.c["threshold"]):
                break
            chosen.append((int(e), prob))
            total += float(prob)
        return chosen

    def experts(self, x, p, ids, kind, k):
        return torch.stack([sum(w * self.ffn(row, p + f"experts.yyh_local_experts.{e}.", True)
                                for e, w in self.choose(row, p, token, kind, k)) for row, token in zip(x, ids)])


class Megatron(Decoder):
    def __init__(self, config, seed):
        super().__init__(config, seed)
        c, t, d, p = config, self.t, config["hidden_size"], "language_model."
        t.put(p + "embedding.word_embeddings.weight", c["padded_vocab_size"], d, scale=0.7)
        if c["add_position_embedding"]:
            t.put(p + "embedding.position_embeddings.weight", c["max_position_embeddings"], d, scale=0.3)
        if c["untie_embeddings_and_output_weights"]:
            t.linear(p + "output_layer", c["padded_vocab_size"], d, bias=False)
        t.norm(p + "encoder.final_layernorm", d)
        for i in range(c["num_layers"]):
            p, bias = f"language_model.encoder.layers.{i}.", c["add_bias_linear"]
            t.norm(p + "input_layernorm", d)
            t.norm(p + "post_attention_layernorm", d)
            t.linear(p + "self_attention.query_key_value", 3 * d, d, bias)
            t.linear(p + "self_attention.dense", d, d, bias)
            names, f = ["mlp."], c["ffn_hidden_size"]
            if (i + 1) % c["expert_interval"] == 0:
                f = c["moe_ffn_hidden_size"]
                names = [f"mlp.experts.yyh_local_experts.{e}." for e in range(c["num_experts"][0])]
                if c["use_hash_layer"]:
                    t[p + "mlp.gate.hash_bin_map"] = torch.randint(len(names), (VOCAB,), generator=t.g)
                else:
                    t.linear(p + "mlp.gate.wg", len(names), d, bias=False)
            for name in names:
                t.linear(p + name + "dense_h_to_4h", f, d, bias)
                t.linear(p + name + "dense_4h_to_h", d, f, bias)

    def ffn(self, x, p, expert):
        act = "tanh" if self.c["bias_gelu_fusion"] else "none"
        x = F.gelu(self.linear(x, p + "dense_h_to_4h"), approximate=act)
        return self.linear(x, p + "dense_4h_to_h", not expert)

    def rotate(self, x):
        if not self.c["use_rotary_position_embeddings"]:
            return x
        half = int(x.shape[-1] * self.c["rotary_percent"]) // 2
        angle = torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(half) / half)
        a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest], -1)

    def __call__(self, ids, kv16):
        c, p = self.c, "language_model.embedding."
        x = self.t[p + "word_embeddings.weight"][torch.tensor(ids)]
        if c["add_position_embedding"]:
            x = x + self.t[p + "position_embeddings.weight"][:len(ids)]
        kinds = dict(topk="topk", threshold="threshold", base="base_layer", hash="hash_layer")
        kind = next(k for k, key in kinds.items() if c["use_" + key])
        for i in range(c["num_layers"]):
            p = f"language_model.encoder.layers.{i}."
            mixed = self.linear(self.norm(x, p + "input_layernorm"), p + "self_attention.query_key_value")
            q, k, v = mixed.view(len(ids), c["num_attention_heads"], -1).transpose(0, 1).chunk(3, -1)
            x = x + self.linear(self.attention(self.rotate(q), self.rotate(k), v, kv16), p + "self_attention.dense")
            y = self.norm(x, p + "post_attention_layernorm")
            moe = (i + 1) % c["expert_interval"] == 0
            x = x + (self.experts(y, p + "mlp.", ids, kind, c["topk"]) if moe else self.ffn(y, p + "mlp.", False))
        head = "output_layer" if c["untie_embeddings_and_output_weights"] else "embedding.word_embeddings"
        return F.linear(self.norm(x, "language_model.encoder.final_layernorm"), self.t[f"language_model.{head}.weight"])


class FairseqBase(Decoder):
    """The FFNs and experts of the fairseq code, for a decoder or an encoder-decoder."""

    def put_ffn(self, p, d, f, moe):
        names = [""]
        if moe:
            names = [f"experts.yyh_local_experts.{e}." for e in range(self.c["num_experts"])]
            f //= self.c["ffn_split_ratio"]
            self.t.linear(p + "gate.wg", len(names), d, bias=False)
        for name in names:
            self.t.linear(p + name + "fc1", f, d)
            self.t.linear(p + name + "fc2", d, f)

    def ffn(self, x, p, expert):
        return self.linear(F.relu(self.linear(x, p + "fc1")), p + "fc2")


class Fairseq(FairseqBase):
    def __init__(self, config, seed):
        super().__init__(config, seed)
        c, t, d = config, self.t, config["decoder_embed_dim"]
        t.put("decoder.embed_tokens.weight", VOCAB, d, scale=0.2)
        t["decoder.version"], t["decoder.embed_positions._float_tensor"] = torch.tensor([3.0]), torch.zeros(1)
        t.norm("decoder.layer_norm", d)
        t["decoder.output_projection.weight"] = t["decoder.embed_tokens.weight"]
        for i in range(c["decoder_layers"]):
            p = f"decoder.layers.{i}."
            for name in ("self_attn_layer_norm", "final_layer_norm"):
                t.norm(p + name, d)
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                t.linear(p + "self_attn." + name, d, d)
            self.put_ffn(p, d, c["decoder_ffn_embed_dim"], (i + 1) % c["expert_interval"] == 0)

    def __call__(self, ids, kv16):
        c, d = self.c, self.c["decoder_embed_dim"]
        frequency = torch.exp(torch.arange(d // 2) * -math.log(10000) / (d // 2 - 1))
        angle = torch.arange(2, 2 + len(ids))[:, None] * frequency
        x = d**0.5 * self.t["decoder.embed_tokens.weight"][torch.tensor(ids)] + torch.cat([angle.sin(), angle.cos()], 1)
        for i in range(c["decoder_layers"]):
            p = f"decoder.layers.{i}."
            y = self.norm(x, p + "self_attn_layer_norm")
            q, k, v = (self.linear(y, p + f"self_attn.{n}_proj").view(len(ids), c["decoder_attention_heads"], -1)
                       .transpose(0, 1) for n in "qkv")
            x = x + self.linear(self.attention(q, k, v, kv16), p + "self_attn.out_proj")
            y = self.norm(x, p + "final_layer_norm")
            moe = (i + 1) % c["expert_interval"] == 0
            x = x + (self.experts(y, p, ids, c["moe_type"], c["moe_k"]) if moe else self.ffn(y, p, False))
        return F.linear(self.norm(x, "decoder.layer_norm"), self.t["decoder.output_projection.weight"])


class Translator(FairseqBase):
    """fairseq's encoder-decoder, with pre-norms or post-norms."""

    both = True

    def __init__(self, config, seed):
        super().__init__(config, seed)
        self.t.put("encoder.embed_tokens.weight", 40, config["decoder_embed_dim"], scale=0.2)
        for side in ("encoder", "decoder"):
            self.make_side(side)
        for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
            self.t[name] = self.t["encoder.embed_tokens.weight"]

    def make_side(self, side):
        c, t, d = self.c, self.t, self.c["decoder_embed_dim"]
        t[side + ".version"] = torch.tensor([3.0])
        if c[side + "_learned_pos"]:
            t.put(side + ".embed_positions.weight", c["max_source_positions"] + 2, d, scale=0.3)
        else:
            t[side + ".embed_positions._float_tensor"] = torch.zeros(1)
        if c["layernorm_embedding"]:
            t.norm(side + ".layernorm_embedding", d)
        if c[side + "_normalize_before"]:
            t.norm(side + ".layer_norm", d)
        for i in range(c[side + "_layers"]):
            p = f"{side}.layers.{i}."
            blocks = ["self"] + ["encoder"] * (side == "decoder")
            for name in [b + "_attn_layer_norm" for b in blocks] + ["final_layer_norm"]:
                t.norm(p + name, d)
            for name in (f"{b}_attn.{x}_proj" for b in blocks for x in ("q", "k", "v", "out")):
                t.linear(p + name, d, d)
            self.put_ffn(p, d, c[side + "_ffn_embed_dim"], self.has_experts(side, i))

    def has_experts(self, side, layer):
        return not self.c[f"no_{side}_moe"] and (layer + 1) % self.c["expert_interval"] == 0

    def positions(self, side, n):
        if self.c[side + "_learned_pos"]:
            return self.t[side + ".embed_positions.weight"][2:2 + n]
        d = self.c["decoder_embed_dim"]
        frequency = torch.exp(torch.arange(d // 2) * -math.log(10000) / (d // 2 - 1))
        angle = torch.arange(2, 2 + n)[:, None] * frequency
        return torch.cat([angle.sin(), angle.cos()], 1)

    def heads(self, x, name, side):
        return self.linear(x, name).view(len(x), self.c[side + "_attention_heads"], -1).transpose(0, 1)

    def attend(self, x, p, side, source=None):
        q, k, v = (self.heads(x if source is None or n == "q" else source, p + n + "_proj", side) for n in "qkv")
        causal = side == "decoder" and source is None
        return self.linear(self.attention(q, k, v, False, causal), p + "out_proj")

    def block(self, x, norm, side, f):
        if self.c[side + "_normalize_before"]:
            return x + f(self.norm(x, norm))
        return self.norm(x + f(x), norm)

    def side(self, side, ids, source=None):
        c = self.c
        x = self.t["encoder.embed_tokens.weight"][torch.tensor(ids)] * c["decoder_embed_dim"]**0.5
        x = x + self.positions(side, len(ids))
        if c["layernorm_embedding"]:
            x = self.norm(x, side + ".layernorm_embedding")
        for i in range(c[side + "_layers"]):
            p = f"{side}.layers.{i}."
            x = self.block(x, p + "self_attn_layer_norm", side, lambda y: self.attend(y, p + "self_attn.", side))
            if source is not None:
                x = self.block(x, p + "encoder_attn_layer_norm", side,
                               lambda y: self.attend(y, p + "encoder_attn.", side, source))
            moe = self.has_experts(side, i)
            x = self.block(x, p + "final_layer_norm", side, lambda y: self.experts(
                y, p, ids, c["moe_type"], c["moe_k"]) if moe else self.ffn(y, p, False))
        return self.norm(x, side + ".layer_norm") if c[side + "_normalize_before"] else x

    def __call__(self, ids, text):
        x = self.side("decoder", text, self.side("encoder", ids))
        return F.linear(x, self.t["encoder.embed_tokens.weight"]).numpy()


def make_translator(changes, seed, folder):
    model = Translator({**TRANSLATOR, **changes}, seed)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(model.c, f, indent=2)
    pickles.save(pickles.fairseq(model.t), folder)
    return model


def make(case, folder):
    megatron = case.family == "xmoe_megatron"
    config = {**(MEGATRON if megatron else FAIRSEQ), **case.config}
    model = (Megatron if megatron else Fairseq)(config, case.seed)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    tensors = {k: v.bfloat16() if v.is_floating_point() else v for k, v in model.t.items()}
    pickles.save(pickles.megatron(tensors) if megatron else pickles.fairseq(tensors), folder)
    return model
