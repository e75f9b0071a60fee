// SPDX-License-Identifier: MIT
#pragma once
// Gated delta rules of `transformers`: the keys "linear_..." and the matrices of a layer.

#include "src/convert/arch/decoder.h"

namespace moe {

/// Reads "layer_types" and the sizes of the rule, and gives the "linear_attention" layers a mixer
/// in place of attention. Without "layer_types" every `n`-th layer has attention, n the key
/// `interval_key` or 4.
void add_gated_delta(Decoder* d, const char* interval_key, float eps, float beta_scale);

/// A layer's matrices, which the names of a table have led to: in_proj_qkvz and in_proj_ba hold all
/// of a key head's rows together, in_proj_qkv and conv1d those of q, k and v one after the other,
/// and conv1d, q_conv1d, k_conv1d and v_conv1d the taps of each channel. `alternate`: the first
/// value head of each key head stands before the second of each, and so on, in all of them, as in
/// GGUF files of Qwen3.5. Call it when `out` locates its slots.
void arrange_gated_delta(Imported* out, bool alternate = false);

}  // namespace moe
