#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF file whose matrices are stored for rotated inputs, as PrismML's Ternary-Bonsai-2 is: each row times
signs and a Hadamard matrix, in float32, with the keys that say so. The model computes the same.

usage: rotated_gguf.py SRC.gguf DST.gguf [--block N] [--seed N]

Needs numpy and gguf.
"""

import argparse

import gguf
import numpy as np
from gguf.quants import dequantize

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_qkv", "attn_gate", "ssm_out", "ffn_gate", "ffn_up", "ffn_down",
            "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")


def hadamard(n):
    """Element (i, j) is -1 if i and j share an odd number of bits."""
    shared = np.bitwise_and.outer(np.arange(n), np.arange(n))
    odd = np.zeros_like(shared)
    while shared.any():
        odd ^= shared & 1
        shared >>= 1
    return (1 - 2 * odd) / np.sqrt(n)


def rotate(rows, signs, block):
    blocks = (rows.astype(np.float64) * signs).reshape(len(rows), -1, block)
    return (blocks @ hadamard(block)).reshape(rows.shape).astype(np.float32)


def is_rotated(name, width, block):
    part = name.split(".")[2] if name.startswith("blk.") else name
    return width % block == 0 and (part in MATRICES or name in ("output.weight", "token_embd.weight"))


def grouped(rows, n_key, n_value):
    """Columns of value heads, of which llama.cpp has the first of each key head before the second of each."""
    heads = rows.reshape(len(rows), n_value // n_key, n_key, -1)
    return heads.transpose(0, 2, 1, 3).reshape(rows.shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("--block", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.source)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(args.out, arch)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub)
    random, signs, names = np.random.default_rng(args.seed), {}, []
    for t in reader.tensors:
        rows = dequantize(t.data, t.tensor_type)
        width = int(t.shape[0])
        if rows.ndim != 2 or not is_rotated(t.name, width, args.block):
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
            continue
        if t.name.endswith(".ssm_out.weight"):
            n_key, n_value = (int(reader.fields[f"{arch}.ssm.{key}"].contents()) for key in ("group_count", "time_step_rank"))
            rows = grouped(rows, n_key, n_value)
        if width not in signs:
            signs[width] = random.choice([-1, 1], width)
        writer.add_tensor(t.name, rotate(rows, signs[width], args.block))
        names.append(t.name)
    tied = "output.weight" not in names
    writer.add_uint32("prism.hadamard.version", 2 if tied else 1)
    if tied:
        writer.add_bool("prism.hadamard.tied_output", True)
    writer.add_uint32("prism.hadamard.block_size", args.block)
    writer.add_string("prism.hadamard.transform", "normalized-sylvester-walsh-hadamard")
    writer.add_string("prism.hadamard.axis", "input-last-dimension")
    writer.add_string("prism.hadamard.sign_mode", "explicit")
    writer.add_array("prism.hadamard.weight_names", [n for n in names if n != "token_embd.weight"])
    writer.add_array("prism.hadamard.inverse_weight_names", ["token_embd.weight"])
    writer.add_array("prism.hadamard.sign_widths", list(signs))
    writer.add_array("prism.hadamard.sign_values", [int(s) for width in signs for s in signs[width]])
    writer.add_bool("prism.hadamard.gdn_v_grouped", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
