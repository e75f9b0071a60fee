// SPDX-License-Identifier: MIT
#pragma once
// Mamba2 of `transformers`: the keys "mamba_..." and the convolutions of a checkpoint.

#include "src/convert/arch/decoder.h"

namespace moe {

/// Reads the sizes. `inner`: channels of all heads, which their number and width must give; 0: as
/// these say.
MixerConfig read_mamba(Decoder* d, int64_t inner);

/// Gives the layer the mixer in place of attention.
void replace_attention(const MixerConfig& mixer, LayerConfig* layer);

/// The convolutions of Mamba2 are (channels, 1, taps) in a checkpoint, or without the axis of one
/// in GGUF files, and (taps, channels) in a model. Call it when `out` locates its slots.
void turn_mamba_convolutions(const Checkpoint& checkpoint, Imported* out);

}  // namespace moe
