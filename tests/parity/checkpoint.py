# SPDX-License-Identifier: MIT
"""A small random checkpoint saved by `transformers`, as the cases of families.py describe it."""

import json
import os
import sys
from dataclasses import dataclass, field

import torch
import transformers as tr
from safetensors.torch import load_file, save_file
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SIZES = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
ODD = dict(vocab_size=101, hidden_size=36, num_attention_heads=6, num_key_value_heads=3, intermediate_size=41)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=2.0)


@dataclass
class Case:
    name: str
    family: str  # prefix of the names of classes in transformers
    config: dict = field(default_factory=dict)
    layout: str = "saved"  # "fused": the modules' own tensors; "saved": what save_pretrained writes
    old_keys: bool = False  # config.json as transformers 4 wrote it
    seed: int = 1
    golden: bool = False  # kept in tests/data/families
    make: object = None  # writes the folder instead of make_transformers: make(case, folder) -> reference
    convert: tuple = ("--weights", "f32")  # options of `moe convert`
    lossless: bool = False  # the converter must detect that all matrices of layers are ternary
    keeps: tuple = None  # format of the layers' matrices without options, the largest relative error, another format of attention
    tolerance: float = 1e-3  # compared with K and V in float32 on both sides
    tolerance_kv16: float = 1e-4  # compared with K and V in float16 on both sides, as sessions have them
    gguf: bool = False  # needs llama.cpp
    vocab_size: int = SIZES["vocab_size"]
    tokenizer: str = None  # name in tests/data/text
    context: int = 0  # of the session; 0: the model's

    @property
    def latent(self):
        """Whether a session can cache latents instead of keys and values."""
        return "kv_lora_rank" in self.config


def attention_kv16(module, query, key, value, *args, **kwargs):
    """The family's own attention on K and V rounded to half precision, as in the KV cache."""
    eager = sys.modules[type(module).__module__].eager_attention_forward
    return eager(module, query, key.half().float(), value.half().float(), *args, **kwargs)


ALL_ATTENTION_FUNCTIONS.register("kv16", attention_kv16)
ALL_MASK_ATTENTION_FUNCTIONS.register("kv16", ALL_MASK_ATTENTION_FUNCTIONS["eager"])


def randomise(model, seed):
    """Weights with which every part affects the outputs, and which bfloat16 represents exactly."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=g)
            if "norm" in name and name.endswith("weight"):
                x = 1 + 0.2 * x
            elif name.endswith("bias") or p.dim() == 1:
                x = 0.2 * x
            elif "embed" in name:
                x = 0.7 * x
            else:
                x = x * 1.3 / p.shape[-1] ** 0.5
            p.copy_(x.bfloat16().float())
        for name, b in model.named_buffers():
            if name.endswith(("correction_bias", "expert_bias")):
                b.copy_((0.2 * torch.randn(b.shape, generator=g)).bfloat16().float())
            elif name.endswith("layer_scalar"):
                b.copy_((0.3 + torch.rand(b.shape, generator=g)).bfloat16().float())
    return model.eval().float()


class forward:
    def __init__(self, model):
        self.model = model

    def __call__(self, ids, kv16):
        self.model.config._attn_implementation = "kv16" if kv16 else "eager"
        return self.model(torch.tensor([ids])).logits[0]


def old_config(path):
    """Writes rope_theta and rope_scaling instead of rope_parameters, and torch_dtype instead of dtype."""
    config = json.load(open(path))
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    json.dump(config, open(path, "w"), indent=2)


def to_bfloat16(folder):
    path = os.path.join(folder, "model.safetensors")
    save_file({k: v.bfloat16() for k, v in load_file(path).items()}, path)


def make_transformers(case, folder):
    config = getattr(tr, case.family + "Config")(**{**SIZES, "intermediate_size": 40, **case.config})
    model = randomise(tr.AutoModelForCausalLM.from_config(config), case.seed)
    model.save_pretrained(folder)
    if case.layout == "fused":
        tensors = {k: v for k, v in model.state_dict().items()
                   if not (k == "lm_head.weight" and config.tie_word_embeddings)}
        save_file(tensors, os.path.join(folder, "model.safetensors"))
    to_bfloat16(folder)
    if case.old_keys:
        old_config(os.path.join(folder, "config.json"))
    return forward(model)
