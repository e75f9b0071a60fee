"""Checkpoints as GGUF files, written by llama.cpp's own converter (its source folder: --llama-cpp)."""

import json
import os
import pathlib
import sys

import numpy as np
import torch

LLAMA_CPP = None  # set by run.py
TEXT = os.path.join(os.path.dirname(__file__), "..", "data", "text")


def llama_cpp_convert(folder, out, outtype, pre):
    """`pre`: name of the pre-tokenizer, which llama.cpp finds by a hash that no trained tokenizer has."""
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
    cls = conversion.get_model_class(get_model_architecture(ModelBase.load_hparams(path, False), ModelType.TEXT))
    with torch.inference_mode():
        writer = cls(path, types[outtype], pathlib.Path(out))
        writer.get_vocab_base_pre = lambda tokenizer: pre
        writer.set_vocab = (lambda: None) if pre is None else writer._set_vocab_gpt2
        writer.write()
    return gguf.GGUFReader(out)


def pack_q2_0(weights):
    """float16 scale of 64 weights, then code + 1 in two bits each, the lowest first."""
    groups = weights.reshape(-1, 64)
    scales = np.abs(groups).max(1, keepdims=True).astype(np.float16)
    codes = np.round(groups / scales.astype(np.float32)).astype(np.uint8) + 1
    codes = codes.reshape(-1, 16, 4) << np.array([0, 2, 4, 6], np.uint8)
    packed = np.concatenate([scales.view(np.uint8), codes.sum(-1, dtype=np.uint8)], 1)
    return packed.reshape(*weights.shape[:-1], -1)


def rewrite(reader, out, q2_0, new_arch):
    """The same file with the layers' matrices as Q2_0, which the converter does not write, or for another program."""
    import gguf
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, new_arch or arch)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            sub = field.types[1] if len(field.types) > 1 else None
            name = name.replace(arch + ".", (new_arch or arch) + ".")
            writer.add_key_value(name, field.contents(), field.types[0], sub)
    for t in reader.tensors:
        if q2_0 and t.name.startswith("blk.") and len(t.shape) > 1:
            weights = gguf.quants.dequantize(t.data, t.tensor_type)
            writer.add_tensor(t.name, pack_q2_0(weights), raw_dtype=gguf.GGMLQuantizationType.Q2_0)
        else:
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_back(reader, model, n_layers):
    """The file's numbers, as gguf reads them, become the reference's weights."""
    import gguf
    arch = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[reader.fields["general.architecture"].contents()]
    names = gguf.get_tensor_name_map(arch, n_layers)
    tensors = {t.name: t for t in reader.tensors}
    with torch.no_grad():
        for name, p in model.named_parameters():
            t = tensors[names.get_name(name, (".weight", ".bias"))]
            p.copy_(torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()).view(p.shape))


def add_tokenizer(folder, name):
    """One of the trained tokenizers of the text tests; returns its vocabulary's size."""
    tokenizer = json.load(open(os.path.join(TEXT, name + ".json")))["tokenizer"]
    json.dump(tokenizer, open(os.path.join(folder, "tokenizer.json"), "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast"},
              open(os.path.join(folder, "tokenizer_config.json"), "w"))


def make(inner, outtype, tokenizer=None, pre=None, arch=None):
    """The checkpoint of `inner` as one GGUF file in the folder, instead of safetensors. `arch`: its name there."""
    def make_file(case, folder):
        reference = inner(case, folder)
        if tokenizer:
            add_tokenizer(folder, tokenizer)
        out = os.path.join(folder, "model.gguf")
        reader = llama_cpp_convert(folder, out, "bf16" if outtype == "q2_0" else outtype, pre)
        if outtype == "q2_0" or arch:
            rewrite(reader, out + ".new", outtype == "q2_0", arch)
            os.replace(out + ".new", out)
        if outtype == "q8_0":
            read_back(reader, reference.model, len(reference.model.model.layers))
        for name in os.listdir(folder):
            if name != "model.gguf":
                os.remove(os.path.join(folder, name))
        return reference

    return make_file
