// SPDX-License-Identifier: MIT
#pragma once
// Kimi's delta rule in some layers and DeepSeek-V3's latent attention in the others: what Kimi
// Linear and Ling 3 have in common.

#include "src/convert/arch/decoder.h"

namespace moe {

/// The values of DeepSeek-V3's keys that a file does not have.
struct KimiDefaults {
  int32_t context = 0;
  int32_t n_experts = 0;
  int32_t n_groups = 1;
  int32_t top_groups = 1;
  int32_t n_dense = 1;  // layers without experts
};

/// Gives `config` DeepSeek-V3's keys, and what its readers take for granted: "head_dim" becomes the
/// width of what is rotated, whatever it was. Throws if "qk_rope_head_dim" is missing, or if a key
/// and its older name have different values.
void add_deepseek_keys(const KimiDefaults& defaults, RenamedConfig* config);

/// The rule's heads and convolutions, `heads` if no key gives their number.
MixerConfig read_kimi_delta(ConfigKeys* keys, int32_t heads, float eps);

/// Gives the layers that "layer_types" calls "linear_attention" the mixer; without the key those
/// for which `attends` is false.
void set_kimi_delta(Decoder* d, const MixerConfig& rule, const std::vector<bool>& attends);

/// Convolutions and the matrices of low rank are turned in a checkpoint. Call it when `out` locates
/// its slots.
void arrange_kimi_delta(const Checkpoint& checkpoint, Imported* out);

}  // namespace moe
