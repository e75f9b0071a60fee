# SPDX-License-Identifier: MIT
"""Writes tests/data/gguf_blocks.safetensors: blocks of every GGUF type, and their values as the `gguf` package decodes them.

    pip install -r tests/parity/requirements.txt
    python3 tests/parity/gguf_blocks.py
"""

import os

import gguf
import numpy as np
from safetensors.numpy import save_file

OUT = os.path.join(os.path.dirname(__file__), "..", "data", "gguf_blocks.safetensors")
# Offsets of the float16 scales and minimums of a block.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
          "MXFP4": [], "Q1_0": [0], "PQ2_0": [0], "PTQ1_0": [26], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
          "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": []}
# Codebooks: the number of entries, and the float16 with which values are whole numbers if all factors are 0.
CODEBOOKS = {"IQ2_XXS": (256, 8), "IQ2_XS": (512, 8), "IQ2_S": (1024, 8), "IQ3_XXS": (256, 4), "IQ3_S": (512, 1), "IQ1_S": (2048, 8),
             "IQ1_M": (2048, 8)}
# Types that the package does not decode: values of a block and its bytes.
OWN = {"Q1_0": (128, 18), "PQ2_0": (128, 34), "PTQ1_0": (128, 28)}
# 1, -1, 0, -0, the smallest subnormal, the largest subnormal, the largest number, infinity, NaN; then random ones
EXTREMES = [0x3C00, 0xBC00, 0, 0x8000, 1, 0x03FF, 0x7BFF, 0x7C00, 0x7E00]


def own_codes(name, blocks):
    """Codes of the types in OWN, written from their layout: for Q1_0 -1 and 1, otherwise -1, 0 and 1 (PQ2_0 also has 2)."""
    if name == "Q1_0":  # the bits of the bytes in order, the lowest first
        return np.unpackbits(blocks[:, 2:], axis=1, bitorder="little") * 2.0 - 1
    if name == "PQ2_0":
        return ((blocks[:, 2:, None] >> np.array([0, 2, 4, 6])) & 3).reshape(len(blocks), -1) - 1.0
    # Digit n of a byte b, which is ceil(256 x / 243) of the number x that its five digits write.
    powers = np.array([3 ** n for n in range(5)])
    digits = ((blocks[:, :26, None].astype(int) * powers) % 256 * 3) >> 8
    parts = [digits[:, :16], digits[:, 16:24], digits[:, 24:26, :4]]
    return np.concatenate([np.moveaxis(p, 1, 2).reshape(len(blocks), -1) for p in parts], axis=1) - 1.0


def decoded(name, blocks):
    if name not in OWN:
        return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    at = HALVES[name][0]
    scales = blocks[:, at:at + 2].copy().view(np.float16).astype(np.float32)
    return own_codes(name, blocks).astype(np.float32) * scales


def random_blocks(name, g):
    size, n_bytes = OWN.get(name) or gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = g.integers(0, 256, (len(EXTREMES) + (3 if size > 64 else 8), n_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        halves = g.integers(0, 0x7C00, len(blocks), dtype=np.uint16) | g.integers(0, 2, len(blocks), dtype=np.uint16) << 15
        halves[:len(EXTREMES)] = EXTREMES
        blocks[:, at:at + 2] = halves.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":  # exponent 255 is NaN in the specification and here, but a number in gguf
        blocks[:, 0] = np.minimum(blocks[:, 0], 254)
        blocks[:4, 0] = [0, 1, 2, 254]
    if name == "IQ1_M":
        halves = g.integers(0, 0x7C00, len(blocks), dtype=np.uint16) | g.integers(0, 2, len(blocks), dtype=np.uint16) << 15
        halves[:len(EXTREMES)] = EXTREMES
        put_half_in_parts(blocks, halves)
    return blocks


def put_half_in_parts(blocks, halves):
    """The float16 of IQ1_M is in the upper four bits of each of the last four words."""
    for part in range(4):
        upper = blocks[:, 49 + 2 * part]
        upper[:] = upper & 15 | ((halves >> 4 * part & 15) << 4).astype(np.uint8)


def every_entry(name):
    """Blocks with every index of a codebook in turn, every sign, and factors of 0."""
    n_entries, scale = CODEBOOKS[name]
    per_block = 64 if name.startswith("IQ3") else 32
    index = np.arange(max(n_entries, 8 * per_block)).reshape(-1, per_block) % n_entries
    n = len(index)
    blocks = np.zeros((n, gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]), np.uint8)
    half = np.full(n, scale, np.float16).view(np.uint16)
    if name == "IQ1_M":
        put_half_in_parts(blocks, half)
    else:
        blocks[:, :2] = half.view(np.uint8).reshape(n, 2)
    signs = (np.arange(32 * n).reshape(n, 32) * 5 + 3) % 256
    sevens = (signs & 127).reshape(n, 8, 4) << np.array([0, 7, 14, 21])
    words = lambda v, kind: np.ascontiguousarray(v.astype(kind)).view(np.uint8).reshape(n, -1)
    low, upper = index & 255, index >> 8
    if name == "IQ2_XXS":
        blocks[:, 2:] = words(np.stack([words(low, np.uint8).view("<u4"), sevens.sum(2)], 2), "<u4")
    elif name == "IQ2_XS":
        blocks[:, 2:66] = words(index | (signs & 127) << 9, "<u2")
    elif name == "IQ2_S":
        blocks[:, 2:34], blocks[:, 34:66] = low, signs
        blocks[:, 66:74] = (upper.reshape(n, 8, 4) << np.array([0, 2, 4, 6])).sum(2)
    elif name == "IQ3_XXS":
        blocks[:, 2:66], blocks[:, 66:] = low, words(sevens.sum(2), "<u4")
    elif name == "IQ3_S":
        blocks[:, 2:66], blocks[:, 74:106] = low, signs
        blocks[:, 66:74] = (upper.reshape(n, 8, 8) << np.arange(8)).sum(2)
    elif name == "IQ1_S":
        shift = (np.arange(8 * n).reshape(n, 8) % 2) << 15
        blocks[:, 2:34] = low
        blocks[:, 34:] = words((upper.reshape(n, 8, 4) << np.array([0, 3, 6, 9])).sum(2) | shift, "<u2")
    else:
        nibbles = (upper | (signs & 1) << 3).reshape(n, 16, 2) << np.array([0, 4])
        blocks[:, :32], blocks[:, 32:48] = low, nibbles.sum(2)
    return blocks


def main():
    g = np.random.default_rng(1)
    out = {}
    for name in HALVES:
        blocks = random_blocks(name, g)
        with np.errstate(all="ignore"):
            values = decoded(name, blocks)
        out[name + ".blocks"], out[name + ".values"] = blocks, np.ascontiguousarray(values, np.float32)
    for name in CODEBOOKS:
        blocks = every_entry(name)
        values = decoded(name, blocks)
        codes = values.astype(np.int8)
        assert (codes == values).all(), name
        out[name + ".every.blocks"], out[name + ".every.codes"] = blocks, codes
    save_file(out, OUT)


if __name__ == "__main__":
    main()
