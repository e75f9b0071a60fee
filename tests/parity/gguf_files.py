# SPDX-License-Identifier: MIT
"""Checkpoints as GGUF files, written by llama.cpp's own converter (--llama-cpp names its source folder)."""

import enum
import json
import os
import pathlib
import sys

import numpy as np
import torch
from safetensors import safe_open

from checkpoint import SIZES, Case, make_transformers

LLAMA_CPP = None  # set by run.py
TEXT = os.path.join(os.path.dirname(__file__), "..", "data", "text")


def predicts_further_tokens(folder):
    with safe_open(os.path.join(folder, "model.safetensors"), "np") as f:
        return any("mtp." in name or name.endswith("eh_proj.weight") for name in f.keys())


def llama_cpp_convert(folder, out, outtype, pre):
    """`pre`: the name of the pre-tokenizer. llama.cpp identifies it by a hash, which does not match our trained tokenizers."""
    for path in (LLAMA_CPP, os.path.join(LLAMA_CPP, "gguf-py")):
        if path not in sys.path:
            sys.path.insert(0, path)
    import conversion
    import gguf
    from conversion.base import ModelBase, ModelType, get_model_architecture
    types = dict(f32=gguf.LlamaFileType.ALL_F32, f16=gguf.LlamaFileType.MOSTLY_F16,
                 bf16=gguf.LlamaFileType.MOSTLY_BF16, q8_0=gguf.LlamaFileType.MOSTLY_Q8_0,
                 tq1_0=gguf.LlamaFileType.MOSTLY_TQ1_0, tq2_0=gguf.LlamaFileType.MOSTLY_TQ2_0)
    path = pathlib.Path(folder)
    ModelBase.no_mtp = not predicts_further_tokens(folder)
    cls = conversion.get_model_class(get_model_architecture(ModelBase.load_hparams(path, False), ModelType.TEXT))
    with torch.inference_mode():
        writer = cls(path, types[outtype], pathlib.Path(out))
        writer.get_vocab_base_pre = lambda tokenizer: pre
        writer.set_vocab = (lambda: None) if pre is None else writer._set_vocab_gpt2
        writer.write()
    return gguf.GGUFReader(out)


class OtherTypes(enum.IntEnum):
    """Types of blocks whose numbers the `gguf` package does not know."""
    PQ2_0 = 142
    PTQ1_0 = 143


def split_blocks(weights, size):
    """Scales of blocks of `size` weights as bytes, and their codes plus 1."""
    groups = weights.reshape(-1, size)
    scales = np.abs(groups).max(1, keepdims=True).astype(np.float16)
    codes = np.round(groups / scales.astype(np.float32)).astype(np.int8) + 1
    return scales.view(np.uint8), codes.astype(np.uint8)


def bits_of_2(codes):
    """Two bits each, the lowest bits first."""
    return (codes.reshape(len(codes), -1, 4) << np.array([0, 2, 4, 6], np.uint8)).sum(-1, dtype=np.uint8)


def pack_q2_0(weights):
    scales, codes = split_blocks(weights, 64)
    return np.concatenate([scales, bits_of_2(codes)], 1)


def pack_pq2_0(weights):
    scales, codes = split_blocks(weights, 128)
    return np.concatenate([scales, bits_of_2(codes)], 1)


def pack_q1_0(weights):
    scales, codes = split_blocks(weights, 128)
    return np.concatenate([scales, np.packbits(codes == 2, axis=1, bitorder="little")], 1)


def pack_ptq1_0(weights):
    """Five base-3 digits to a byte, of codes 16 apart, then 8 apart; the last four pairs of codes in two bytes."""
    scales, codes = split_blocks(weights, 128)

    def digits(part, n_digits):
        part = part.reshape(len(part), n_digits, -1).astype(int)
        number = sum(part[:, i] * 3 ** (4 - i) for i in range(n_digits))
        return ((number * 256 + 242) // 243).astype(np.uint8)

    return np.concatenate([digits(codes[:, :80], 5), digits(codes[:, 80:120], 5), digits(codes[:, 120:], 4), scales], 1)


# Types that the converter does not write: how a tensor becomes blocks, and its number.
OWN_BLOCKS = {"q2_0": (pack_q2_0, 42), "q1_0": (pack_q1_0, 41), "pq2_0": (pack_pq2_0, OtherTypes.PQ2_0),
              "ptq1_0": (pack_ptq1_0, OtherTypes.PTQ1_0)}


def copy_fields(reader, writer, old="", new=""):
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            sub = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name.replace(old, new), field.contents(), field.types[0], sub)


def write_all(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rewrite(reader, out, blocks, new_arch):
    """The same file with the layers' matrices in a type of OWN_BLOCKS, or with another architecture name."""
    import gguf
    gguf.constants.GGML_QUANT_SIZES.update({OtherTypes.PQ2_0: (128, 34), OtherTypes.PTQ1_0: (128, 28)})
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, new_arch or arch)
    copy_fields(reader, writer, arch + ".", (new_arch or arch) + ".")
    for t in reader.tensors:
        if blocks and t.name.startswith("blk.") and len(t.shape) > 1:
            weights = gguf.quants.dequantize(t.data, t.tensor_type)
            pack, kind = OWN_BLOCKS[blocks]
            if not isinstance(kind, OtherTypes):
                kind = gguf.GGMLQuantizationType(kind)
            writer.add_tensor(t.name, pack(weights).reshape(*weights.shape[:-1], -1), raw_dtype=kind)
        else:
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    write_all(writer)


# For types with a minimum: the factor of the scale that makes the mean of random weights 0.
MEANS = {"Q4_1": -7.5, "Q5_1": -15.5, "Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}


def random_blocks(shape, name, std, g):
    """Random codes, and scales with which the values have about this standard deviation."""
    from gguf_blocks import HALVES
    kind = gguf_type(name)
    values, n_bytes = type_sizes(kind)
    blocks = g.integers(0, 256, (int(np.prod(shape)) // values, n_bytes), dtype=np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = 127 + int(np.log2(std / 3)) + g.integers(0, 2, len(blocks))
        return blocks.reshape(*shape[:-1], -1), kind

    def put(d):
        halves = [d, d * MEANS[name]] if name in MEANS else [d]
        for at, half in zip(HALVES[name], halves):
            blocks[:, at:at + 2] = half.astype(np.float16).view(np.uint8).reshape(-1, 2)

    put(np.full(len(blocks), 1 / 64))
    scale = std / 64 / dequantised(blocks, kind).std()
    put(scale * g.uniform(0.5, 1.5, len(blocks)))
    return blocks.reshape(*shape[:-1], -1), kind


def gguf_type(name):
    import gguf
    return gguf.GGMLQuantizationType[name]


def type_sizes(kind):
    import gguf
    return gguf.GGML_QUANT_SIZES[kind]


def dequantised(data, kind):
    import gguf
    return gguf.quants.dequantize(data, kind)


def requantise(reader, out, types, seed):
    """The same file with random blocks instead of its matrices, which take these types in turn."""
    import gguf
    g = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    copy_fields(reader, writer)
    n = 0
    for t in reader.tensors:
        shape = [int(d) for d in reversed(t.shape)]
        values = type_sizes(gguf_type(types[n % len(types)]))[0]
        if len(shape) < 2 or "_inp" in t.name or shape[-1] % values != 0:
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
            continue
        std = 0.7 if t.name == "token_embd.weight" else 1.3 / shape[-1] ** 0.5
        data, kind = random_blocks(shape, types[n % len(types)], std, g)
        writer.add_tensor(t.name, data, raw_dtype=kind)
        n += 1
    write_all(writer)


def parameters(reference):
    """(name in the checkpoint, parameter) of the model, and of the layer that guesses tokens if there is one."""
    yield from reference.model.named_parameters()
    if hasattr(reference, "guesses"):
        guesser = reference.guesses.__self__
        prefix = f"model.layers.{len(reference.model.model.layers)}."
        for name, p in guesser.named_parameters():
            part, _, rest = name.partition(".")
            names = {"layer": rest, "fc": "eh_proj." + rest, "norm": "shared_head.norm." + rest}
            yield prefix + names.get(part, name), p


def read_back(reader, reference, restore):
    """Sets the reference's weights to the file's values, as gguf decodes them. `restore`: undoes what the converter did to
    the parameter of that name; None: nothing."""
    model = reference.model
    import gguf
    arch = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[reader.fields["general.architecture"].contents()]
    names = gguf.get_tensor_name_map(arch, len(model.model.layers) + 1)
    tensors = {t.name: t for t in reader.tensors}

    def values(name):
        t = tensors[name]
        return torch.from_numpy(dequantised(t.data, t.tensor_type).copy())

    def find(name):
        if name.endswith("experts.gate_up_proj"):
            block = "blk." + name.split(".")[2]
            return torch.cat([values(f"{block}.ffn_{part}_exps.weight") for part in ("gate", "up")], 1)
        if name.endswith("experts.down_proj"):
            name += ".weight"
        if name.endswith("dt_bias"):
            name = name[:-len("dt_bias")] + "dt_proj.bias"
        return values(names.get_name(name, (".weight", ".bias")))

    with torch.no_grad():
        for name, p in parameters(reference):
            x = find(name)
            p.copy_((restore(model.config, name, x) if restore else x).reshape(p.shape))


def add_tokenizer(folder, name):
    """Writes one of the trained tokenizers of the text tests into the folder."""
    tokenizer = json.load(open(os.path.join(TEXT, name + ".json")))["tokenizer"]
    json.dump(tokenizer, open(os.path.join(folder, "tokenizer.json"), "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast"},
              open(os.path.join(folder, "tokenizer_config.json"), "w"))


def make(inner, outtype, tokenizer=None, pre=None, arch=None, restore=None):
    """Writes the checkpoint of `inner` as one GGUF file in the folder, instead of safetensors. `outtype`: that of
    llama.cpp's converter, or a list of types, which the matrices take in turn. `arch`: the architecture's name in the file."""
    def make_file(case, folder):
        reference = inner(case, folder)
        if tokenizer:
            add_tokenizer(folder, tokenizer)
        out = os.path.join(folder, "model.gguf")
        types = outtype if isinstance(outtype, list) else None
        blocks = outtype if types is None and outtype in OWN_BLOCKS else None
        reader = llama_cpp_convert(folder, out, "bf16" if blocks else "f32" if types else outtype, pre)
        if types:
            requantise(reader, out + ".new", types, case.seed)
            os.replace(out + ".new", out)
            import gguf
            reader = gguf.GGUFReader(out)
        if blocks or arch:
            rewrite(reader, out + ".new", blocks, arch)
            os.replace(out + ".new", out)
        if outtype == "q8_0" or types:
            read_back(reader, reference, restore)
        for name in os.listdir(folder):
            if name != "model.gguf":
                os.remove(os.path.join(folder, name))
        return reference

    return make_file


def gguf_case(name, family, outtype, config=None, tokenizer=None, pre=None, inner=make_transformers, arch=None, restore=None, **kw):
    config = dict(dict(vocab_size=400) if tokenizer else {}, **(config or {}))
    kw.setdefault("vocab_size", config.get("vocab_size", SIZES["vocab_size"]))
    return Case("gguf_" + name, family, config, gguf=True, tokenizer=tokenizer,
                make=make(inner, outtype, tokenizer, pre, arch, restore), **kw)
