// SPDX-License-Identifier: MIT
#pragma once
// DeepSeek-V3's latent attention and experts, for architectures that have them in some layers.

#include <functional>

#include "src/convert/arch/decoder.h"

namespace moe::arch::deepseek {

struct Variant {
  bool rotates = true;  // false: the part of keys that all heads share is not rotated
  std::function<void(Decoder* d)> extend = {};  // called when the layers are configured
};

/// A checkpoint with DeepSeek-V3's keys and tensor names, as `variant` changes them.
Imported import_v3_variant(const JsonNode& config, const Checkpoint& checkpoint,
                           const Variant& variant);

}  // namespace moe::arch::deepseek
