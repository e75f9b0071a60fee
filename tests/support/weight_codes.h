// SPDX-License-Identifier: MIT
#pragma once
// Codes and scales of any weight format in quant/list.h, for tests over the list.

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "quant/formats.h"

namespace moe {

/// A valid code for a packer. Formats of only_blocks() have none: tests/support/weight_blocks.h.
inline int random_weight_code(const WeightFormat& f, std::mt19937& rng) {
  if (f.group != 0) return f.random_code(static_cast<uint8_t>(rng()));
  return static_cast<int>(rng() % static_cast<unsigned>(2 * f.max_code + 1)) - f.max_code;
}

/// The largest code, or with a sign of -1 the smallest.
inline int extreme_weight_code(const WeightFormat& f, int sign) {
  if (f.group == 0) return sign * f.max_code;
  int code = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const int other = f.random_code(static_cast<uint8_t>(byte));
    code = sign < 0 ? std::min(code, other) : std::max(code, other);
  }
  return code;
}

/// The value of padding.
inline float padding_code(const WeightFormat& f) { return f.id == FormatId::kNl4 ? 1.0f : 0.0f; }

/// Group sizes for kGroup.
inline std::vector<int32_t> scale_groups(const WeightFormat& f) {
  if (!f.can_have(ScaleKind::kGroup)) return {};
  return f.group != 0 ? std::vector<int32_t>{f.group} : std::vector<int32_t>{64, 128, 256};
}

/// Puts random scales, and minimums if the format has them, in a packed tile.
inline void put_random_scales(const WeightFormat& f, int n_rows, int32_t cols, std::mt19937& rng,
                              uint8_t* tile) {
  if (f.group == 0 || f.only_blocks()) return;
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const auto n = static_cast<size_t>(n_rows) * static_cast<size_t>((cols + f.group - 1) / f.group);
  std::vector<float> scales(n), minimums(n);
  for (size_t i = 0; i < n; ++i) {
    // Powers of two are exact in every format; other scales only where stored as f16.
    const float scale = std::exp2(std::floor(2 * normal(rng))) / 64;
    scales[i] = f.id == FormatId::kFp4 ? scale : scale * (1 + std::fabs(normal(rng)));
    if (f.id != FormatId::kFp4 && rng() % 4 == 0) scales[i] = -scales[i];
    minimums[i] = normal(rng);
  }
  f.pack_scales(scales.data(), minimums.data(), n_rows, cols, tile);
}

}  // namespace moe
