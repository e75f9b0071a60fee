#!/usr/bin/env python3
"""Writes a GGUF file of a named shape with random weights.

Usage: write_gguf.py SHAPE TYPE FILE

TYPE (TQ2_0 or Q8_0) is that of the attention, FFN and expert matrices. Embedding and output head
are Q8_0 with either (ours are int8 with either), routers and norms F32. The blocks are random bytes
with one sane scale, drawn from a pool of a few megabytes: memory stays small and nothing is
quantised.
"""

import argparse
import math
import os

import gguf
import numpy as np

from shapes import SHAPES, matrices

POOL_BLOCKS = 1 << 16
Type = gguf.GGMLQuantizationType


def scale_bytes(n, scale):
    return np.full((n, 1), scale, dtype="<f2").view(np.uint8)


def random_blocks(rng, kind, n):
    """(n, bytes of a block) of weights with an RMS of about 0.02."""
    if kind == Type.Q8_0:
        codes = rng.integers(-127, 128, (n, 32), dtype=np.int8).view(np.uint8)
        return np.hstack([scale_bytes(n, 0.02 / 73), codes])
    trits = rng.integers(0, 3, (4, n, 64), dtype=np.uint8)
    codes = trits[0] | trits[1] << 2 | trits[2] << 4 | trits[3] << 6
    return np.hstack([codes, scale_bytes(n, 0.02 / 0.8165)])


class Source:
    """The bytes of every tensor, a piece at a time."""

    def __init__(self, linear):
        self.rng = np.random.default_rng(1)
        self.types = {"linear": linear, "vocabulary": Type.Q8_0, "router": Type.F32,
                      "norm": Type.F32}
        self.pools = {t: random_blocks(self.rng, t, POOL_BLOCKS) for t in {linear, Type.Q8_0}}

    def n_bytes(self, shape, kind):
        per_block, block_bytes = gguf.GGML_QUANT_SIZES[self.types[kind]]
        if shape[-1] % per_block:
            raise ValueError(f"rows of {shape[-1]} do not consist of blocks of {per_block}")
        return math.prod(shape) // per_block * block_bytes

    def write(self, out, shape, kind):
        if kind == "norm":
            out.write(np.ones(shape, dtype="<f4").tobytes())
        elif kind == "router":
            values = self.rng.standard_normal(shape) / math.sqrt(shape[-1])
            out.write(values.astype("<f4").tobytes())
        else:
            pool = self.pools[self.types[kind]]
            left = self.n_bytes(shape, kind) // pool.shape[1]
            while left:  # from another place of the pool each time: no two experts are the same
                start = int(self.rng.integers(0, POOL_BLOCKS - 1))
                piece = pool[start:start + min(left, POOL_BLOCKS - start)]
                out.write(memoryview(piece).cast("B"))
                left -= len(piece)


def add_header(writer, shape):
    writer.add_file_type(gguf.LlamaFileType.GUESSED)
    writer.add_vocab_size(shape.vocab)
    writer.add_tokenizer_model("none")
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.d_model)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.d_ff)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(1e-5)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)


def write_gguf(shape_name, type_name, path):
    """Writes the file, under another name until it is whole."""
    shape = SHAPES[shape_name]
    source = Source(Type[type_name])
    part = path + ".part"
    writer = gguf.GGUFWriter(part, shape.arch)
    add_header(writer, shape)
    tensors = matrices(shape)
    for name, (size, kind) in tensors.items():
        writer.add_tensor_info(name, size, np.dtype(np.float32), source.n_bytes(size, kind),
                               raw_dtype=source.types[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    out = writer.fout[0]
    writer.write_padding(out, out.tell())
    for size, kind in tensors.values():
        source.write(out, size, kind)
        writer.write_padding(out, source.n_bytes(size, kind))
    writer.close()
    os.replace(part, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("type", choices=["TQ2_0", "Q8_0"])
    parser.add_argument("file")
    o = parser.parse_args()
    write_gguf(o.shape, o.type, o.file)
    print(f"{o.file}: {os.path.getsize(o.file) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
