// SPDX-License-Identifier: MIT
#pragma once
// BitNet's ternary weights: quant_method "bitnet" of `transformers`, and I2_S of bitnet.cpp.

#include "formats/import/checkpoint.h"

namespace moe {

/// `quantization`: that of config.json. Offline: a matrix NAME.weight of U8 with NAME.weight_scale
/// becomes one of ternary codes; the weights of autobitlinear may also be floats to be multiplied
/// by the scale. Experts fused in a 3-D tensor are packed each by itself, or across the experts.
/// Online: marks the matrices of linear layers that modules_to_not_convert leaves.
void unpack_bitnet(Checkpoint* checkpoint, const JsonNode& quantization);

/// Tensors of type I2_S of a GGUF file. `arm`: in blocks of 64 weights, as bitnet.cpp writes them
/// on ARM since November 2025; otherwise of 128.
void unpack_i2_s(Checkpoint* checkpoint, bool arm);

/// Marks the matrices NAME.weight with a norm of their own, NAME.norm.weight: those of BitNet's
/// embedding models, whose config.json says nothing of it.
void round_normed(Checkpoint* checkpoint);

}  // namespace moe
