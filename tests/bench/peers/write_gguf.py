#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF file of a named shape with random weights.

Usage: write_gguf.py SHAPE TYPE FILE [--ik] [--tokenizer]

TYPE is that of the attention, FFN and expert matrices. With TQ2_0 and Q8_0, the embedding and the output head
are Q8_0; Q4_0 and Q4_K_M mix types as llama-quantize does (the head in Q6_K). --ik writes the file for
ik_llama.cpp, whose ternary type is IQ2_BN. --tokenizer adds one of as many tokens, which servers need: bytes, and
pairs and fours of letters. Routers and norms are F32. The blocks are random bytes with a constant scale, drawn from a
pool of a few megabytes, so memory use is small and nothing is quantised.
"""

import argparse
import itertools
import math
import os
import string

import gguf
import numpy as np

from shapes import IK_TYPES, SHAPES, TYPES, matrices, quantisation

POOL_BLOCKS = 1 << 16
POOL_ROWS = 1 << 12
IQ2_BN = 135  # ik_llama.cpp's number of it; gguf-py does not know the type
IQ2_BN_BLOCK = 64  # weights


def type_number(kind):
    return IQ2_BN if kind == "IQ2_BN" else gguf.GGMLQuantizationType[kind]


def scale_bytes(n, scale):
    return np.full((n, 1), scale, dtype="<f2").view(np.uint8)


def random_bytes(rng, n, width):
    return rng.integers(0, 256, (n, width), dtype=np.uint8)


def q8_0(rng, n):
    codes = rng.integers(-127, 128, (n, 32), dtype=np.int8).view(np.uint8)
    return [scale_bytes(n, 0.02 / 73), codes]


def tq2_0(rng, n):
    trits = rng.integers(0, 3, (4, n, 64), dtype=np.uint8)
    codes = trits[0] | trits[1] << 2 | trits[2] << 4 | trits[3] << 6
    return [codes, scale_bytes(n, 0.02 / 0.8165)]


def q4_0(rng, n):
    """Codes -7..7: with a mean other than 0 all tokens would point in one direction and choose the same experts."""
    low, high = rng.integers(1, 16, (2, n, 16), dtype=np.uint8)
    return [scale_bytes(n, 0.02 / 4.32), low | high << 4]


def q4_k(rng, n):
    """The six-bit scales and minimums are random too; the scale of the minimums makes the mean 0."""
    return [scale_bytes(n, 0.02 / 256), scale_bytes(n, 0.02 / 256 * 7.5), random_bytes(rng, n, 12 + 128)]


def q6_k(rng, n):
    scales = rng.integers(8, 16, (n, 16), dtype=np.int8) * rng.choice(np.int8([-1, 1]), (n, 16))
    return [random_bytes(rng, n, 128 + 64), scales.view(np.uint8), scale_bytes(n, 0.02 / (18.5 * 11.7))]


def iq2_bn_rows(rng, n, cols):
    """Rows of one scale in f32 and codes of two bits, 0 to 2."""
    trits = rng.integers(0, 3, (4, n, cols // 4), dtype=np.uint8)
    codes = trits[0] | trits[1] << 2 | trits[2] << 4 | trits[3] << 6
    return [np.full((n, 1), 0.02 / 0.8165, dtype="<f4").view(np.uint8), codes]


BLOCKS = {"Q8_0": q8_0, "TQ2_0": tq2_0, "Q4_0": q4_0, "Q4_K": q4_k, "Q6_K": q6_k}


class Source:
    """Writes the bytes of each tensor, a piece at a time."""

    def __init__(self):
        self.rng = np.random.default_rng(1)
        self.pools = {}

    def pool(self, kind, cols):
        """Blocks, or rows of `cols` where a row has a scale of its own, of weights with an RMS of about 0.02."""
        key = (kind, cols if kind == "IQ2_BN" else None)
        if key not in self.pools:
            made = iq2_bn_rows(self.rng, POOL_ROWS, cols) if kind == "IQ2_BN" else BLOCKS[kind](self.rng, POOL_BLOCKS)
            self.pools[key] = np.hstack(made)
        return self.pools[key]

    def write(self, out, name, shape, kind):
        if "norm" in name:
            out.write(np.ones(shape, dtype="<f4").tobytes())
        elif kind == "F32":
            values = self.rng.standard_normal(shape) / math.sqrt(shape[-1])
            out.write(values.astype("<f4").tobytes())
        else:
            pool = self.pool(kind, shape[-1])
            left = n_bytes(shape, kind) // pool.shape[1]
            while left:  # each piece starts at a random place of the pool, so that no two experts are equal
                start = int(self.rng.integers(0, len(pool) - 1))
                piece = pool[start:start + min(left, len(pool) - start)]
                out.write(memoryview(piece).cast("B"))
                left -= len(piece)


def n_bytes(shape, kind):
    if kind == "IQ2_BN":
        if shape[-1] % IQ2_BN_BLOCK:
            raise ValueError(f"rows of {shape[-1]} do not consist of blocks of {IQ2_BN_BLOCK}")
        return math.prod(shape[:-1]) * (4 + shape[-1] // 4)
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[type_number(kind)]
    if shape[-1] % per_block:
        raise ValueError(f"rows of {shape[-1]} do not consist of blocks of {per_block}")
    return math.prod(shape) // per_block * block_bytes


def byte_letters():
    """The character for each byte in a vocabulary of GPT-2's kind: itself if it is visible, or one from 256 on."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


def add_tokenizer(writer, n):
    """BPE: n tokens with the end of text, each merged from two before it."""
    letters = string.ascii_lowercase
    pairs = [a + b for a in letters for b in letters]
    end = "<|endoftext|>"
    left = n - 1 - 256 - len(pairs)
    fours = itertools.islice(itertools.product(pairs, pairs), left)
    merges = [*pairs, *fours]
    tokens = [end, *byte_letters(), *("".join(merge) for merge in merges)]
    if len(tokens) != n:
        raise ValueError(f"there are {len(tokens)} tokens of these kinds, expected {n}")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (n - 1))
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def add_header(writer, shape, has_tokenizer):
    writer.add_file_type(gguf.LlamaFileType.GUESSED)
    writer.add_vocab_size(shape.vocab)
    if has_tokenizer:
        add_tokenizer(writer, shape.vocab)
    else:
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
        writer.add_expert_feed_forward_length(shape.d_ff)  # `qwen3moe` would divide the length above by the experts used


def write_gguf(shape_name, type_name, path, for_ik=False, has_tokenizer=False):
    """Writes the file, under another name until it is complete."""
    shape = SHAPES[shape_name]
    if for_ik:
        shape, type_name = shape.for_ik(), IK_TYPES.get(type_name, type_name)
    source = Source()
    part = path + ".part"
    writer = gguf.GGUFWriter(part, shape.arch)
    add_header(writer, shape, has_tokenizer)
    tensors = {name: (size, quantisation(shape, type_name, name, kind))
               for name, (size, kind) in matrices(shape).items()}
    for name, (size, kind) in tensors.items():
        writer.add_tensor_info(name, size, np.dtype(np.float32), n_bytes(size, kind),
                               raw_dtype=type_number(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    out = writer.fout[0]
    writer.write_padding(out, out.tell())
    for name, (size, kind) in tensors.items():
        source.write(out, name, size, kind)
        writer.write_padding(out, n_bytes(size, kind))
    writer.close()
    os.replace(part, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("file")
    parser.add_argument("--ik", action="store_true", help="for ik_llama.cpp")
    parser.add_argument("--tokenizer", action="store_true", help="with a tokenizer")
    o = parser.parse_args()
    write_gguf(o.shape, o.type, o.file, o.ik, o.tokenizer)
    print(f"{o.file}: {os.path.getsize(o.file) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
