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
          "MXFP4": [], "Q1_0": [0], "PQ2_0": [0], "PTQ1_0": [26]}
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
    return blocks


def main():
    g = np.random.default_rng(1)
    out = {}
    for name in HALVES:
        blocks = random_blocks(name, g)
        with np.errstate(all="ignore"):
            values = decoded(name, blocks)
        out[name + ".blocks"], out[name + ".values"] = blocks, np.ascontiguousarray(values, np.float32)
    save_file(out, OUT)


if __name__ == "__main__":
    main()
