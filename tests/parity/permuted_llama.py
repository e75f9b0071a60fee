#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF file of a Llama-like model in F16 with its channels in another order: the same function, whose
weights no longer lie on the grids of the block type that they were stored in. Formats are compared on it as on a model
that was never quantised (docs/precision.md).

usage: permuted_llama.py SRC.gguf DST.gguf

Needs numpy and gguf.
"""

import argparse

import gguf
import numpy as np
from gguf.quants import dequantize


def number(reader, name):
    architecture = reader.fields["general.architecture"].contents()
    return int(reader.fields[f"{architecture}.{name}"].contents())


def permute(tensors, reader, rng):
    """The residual stream, each layer's inner units, and the channels of each value head get a new order."""
    n_heads, n_kv = number(reader, "attention.head_count"), number(reader, "attention.head_count_kv")
    stream = rng.permutation(number(reader, "embedding_length"))
    for name in ("token_embd.weight", "output.weight", "output_norm.weight"):
        if name in tensors:
            tensors[name] = tensors[name][..., stream]
    for layer in range(number(reader, "block_count")):
        def change(part, f, layer=layer):
            name = f"blk.{layer}.{part}.weight"
            tensors[name] = f(tensors[name])

        inner = rng.permutation(number(reader, "feed_forward_length"))
        width = tensors[f"blk.{layer}.attn_v.weight"].shape[0] // n_kv
        heads = [rng.permutation(width) for _ in range(n_kv)]
        values = np.concatenate([head + width * i for i, head in enumerate(heads)])
        joined = np.concatenate([heads[i * n_kv // n_heads] + width * i for i in range(n_heads)])
        for part in ("attn_norm", "ffn_norm", "attn_q", "attn_k"):
            change(part, lambda w: w[..., stream])
        change("attn_v", lambda w, rows=values: w[rows][:, stream])
        change("attn_output", lambda w, cols=joined: w[stream][:, cols])
        for part in ("ffn_gate", "ffn_up"):
            change(part, lambda w, rows=inner: w[rows][:, stream])
        change("ffn_down", lambda w, cols=inner: w[stream][:, cols])


def write(reader, tensors, path):
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.quantization_version"):
            continue
        if name == "general.file_type":
            writer.add_uint32(name, 1)
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind,
                             sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        values = tensors[tensor.name]
        writer.add_tensor(tensor.name, values if values.ndim == 1 else values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("destination")
    options = parser.parse_args()
    reader = gguf.GGUFReader(options.source)
    tensors = {t.name: dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)]).astype(np.float32)
               for t in reader.tensors}
    permute(tensors, reader, np.random.default_rng(1))
    write(reader, tensors, options.destination)


if __name__ == "__main__":
    main()
