# SPDX-License-Identifier: MIT
"""The shapes of src/convert/shapes.cpp that llama.cpp has an architecture for."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """The sizes of one model, and the llama.cpp architecture that computes it."""

    arch: str
    vocab: int
    d_model: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int  # of one expert, if there are experts
    rope_theta: float
    tied: bool
    experts: int = 0
    experts_used: int = 0
    qk_norm: bool = False  # over all heads together, or
    qk_norm_by_head: bool = False  # over each by itself
    sub_norm: bool = False
    ik_arch: str = ""  # in ik_llama.cpp, if it has another one for this shape

    def for_ik(self):
        """The same shape as ik_llama.cpp computes it: it has no `olmoe`, and `qwen3moe` norms each head by itself."""
        return replace(self, arch=self.ik_arch or self.arch, qk_norm_by_head=bool(self.ik_arch))



SHAPES = {
    # `llama` with experts is Mixtral, which renormalises the weight of the single chosen expert to 1.
    "edge-moe-768x12": Shape("llama", 32000, 768, 12, 12, 12, 64, 2048, 1e4, True, 8, 1),
    # The FFN of `bitnet` uses silu, that of the model relu2.
    "bitnet-2b-4t": Shape("bitnet", 128256, 2560, 30, 20, 5, 128, 6912, 5e5, True, sub_norm=True),
    "olmoe-1b-7b": Shape("olmoe", 50304, 2048, 16, 16, 16, 128, 1024, 1e4, False, 64, 8,
                         qk_norm=True, ik_arch="qwen3moe"),
}

# Our weight formats, each with the llama.cpp file types that it is compared with.
PAIRS = {"ternary2": ["TQ2_0"], "int8": ["Q8_0"], "int4": ["Q4_0", "Q4_K_M"]}
TYPES = [name for names in PAIRS.values() for name in names]
# The same weights in ik_llama.cpp, where it has a type of its own for them.
IK_TYPES = {"TQ2_0": "IQ2_BN"}


def matrices(shape):
    """name -> (shape, kind) of every tensor; kind is linear, vocabulary, router or norm."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    d, f, e = shape.d_model, shape.d_ff, shape.experts
    found = {"token_embd.weight": ((shape.vocab, d), "vocabulary"),
             "output_norm.weight": ((d,), "norm")}
    if not shape.tied:
        found["output.weight"] = ((shape.vocab, d), "vocabulary")
    for layer in range(shape.layers):
        own = {"attn_norm": ((d,), "norm"), "ffn_norm": ((d,), "norm"),
               "attn_q": ((q, d), "linear"), "attn_k": ((kv, d), "linear"),
               "attn_v": ((kv, d), "linear"), "attn_output": ((d, q), "linear")}
        if shape.qk_norm:
            by_head = (shape.head_dim,)
            own |= {"attn_q_norm": (by_head if shape.qk_norm_by_head else (q,), "norm"),
                    "attn_k_norm": (by_head if shape.qk_norm_by_head else (kv,), "norm")}
        if shape.sub_norm:
            own |= {"attn_sub_norm": ((q,), "norm"), "ffn_sub_norm": ((f,), "norm")}
        if e:
            own |= {"ffn_gate_inp": ((e, d), "router"), "ffn_gate_exps": ((e, f, d), "linear"),
                    "ffn_up_exps": ((e, f, d), "linear"), "ffn_down_exps": ((e, d, f), "linear")}
        else:
            own |= {"ffn_gate": ((f, d), "linear"), "ffn_up": ((f, d), "linear"),
                    "ffn_down": ((d, f), "linear")}
        found |= {f"blk.{layer}.{name}.weight": what for name, what in own.items()}
    return found


def has_more_bits(layer, layers):
    """Whether Q4_K_M stores attn_v and ffn_down of this layer in six bits."""
    first = layers // 8
    return layer < first or layer >= 7 * layers // 8 or (layer - first) % 3 == 2


def quantisation(shape, file_type, name, kind):
    """The type of a tensor: as llama-quantize writes Q4_0 and Q4_K_M, and as our ternary and int8 models store it."""
    if kind in ("norm", "router"):
        return "F32"
    if file_type not in ("Q4_0", "Q4_K_M"):
        return "Q8_0" if kind == "vocabulary" else file_type
    if name == "output.weight" or shape.tied and name == "token_embd.weight":
        return "Q6_K"
    if file_type == "Q4_0":
        return "Q4_0"
    often_six = ".attn_v." in name or ".ffn_down" in name
    six = often_six and has_more_bits(int(name.split(".")[1]), shape.layers)
    return "Q6_K" if six else "Q4_K"
