# SPDX-License-Identifier: MIT
"""Measures what converting 8-bit and NF4 codes adds to the error of the package that chose them: figures for docs/checkpoints.md.

    pip install -r tests/parity/requirements.txt
    python3 tests/parity/lost_codes.py

Symmetric 8-bit codes of compressed-tensors reach -128, which becomes -127. NF4's table of floats is rounded to 8 bits.
"""

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize
from compressed_tensors.quantization.utils import calculate_qparams

NF4 = torch.tensor([-124, -86, -65, -49, -35, -23, -11, 0, 10, 20, 31, 42, 55, 70, 90, 124]) / 124


def error(found, expected):
    return float((found - expected).norm() / expected.norm())


def lowest_codes(weights, size):
    """Share of the groups with a code of -128, error of the codes, and what -127 in its place adds."""
    args = QuantizationArgs(num_bits=8, strategy="group", group_size=size)
    groups = weights.unflatten(1, (-1, size))
    scales, zeros = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
    codes = quantize(weights, scales, zeros, args).float().unflatten(1, (-1, size))
    values = codes * scales.float()[..., None]
    nearest = codes.clamp(min=-127) * scales.float()[..., None]
    return (codes == -128).any(-1).float().mean(), error(values, groups.float()), error(nearest, values)


def nf4(weights):
    """Error of NF4, and what rounding its table adds."""
    codes, state = quantize_4bit(weights, quant_type="nf4", blocksize=64)
    values = dequantize_4bit(codes, state)
    indices = (values.unflatten(1, (-1, 64)) / state.absmax.view(weights.shape[0], -1, 1)).unsqueeze(-1).sub(state.code).abs().argmin(-1)
    rounded = NF4[indices] * state.absmax.view(weights.shape[0], -1, 1)
    return error(values, weights), error(rounded.flatten(1), values)


def main():
    weights = torch.randn((512, 4096), generator=torch.Generator().manual_seed(1))
    for kind in (torch.float32, torch.bfloat16):
        for size in (32, 128, 4096):
            share, own, added = lowest_codes(weights.to(kind), size)
            print(f"{kind}, groups of {size:4}: -128 in {100 * share:4.1f} %; error {own:.4f}, -127 adds {added:.4f}")
    own, added = nf4(weights)
    print(f"NF4: error {own:.4f}, the rounded table adds {added:.4f}")


if __name__ == "__main__":
    main()
