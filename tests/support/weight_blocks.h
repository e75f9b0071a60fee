// SPDX-License-Identifier: MIT
#pragma once
// Random blocks of the formats whose weights come as blocks (WeightFormat::only_blocks), for tests
// over the list.

#include <cstring>
#include <random>
#include <vector>

#include "quant/codebook.h"
#include "quant/formats.h"
#include "quant/half.h"

namespace moe {

/// Writes a block's f16, which iq1_m has in parts.
inline void put_half_in_block(const WeightFormat& f, uint16_t half, uint8_t* block) {
  if (f.id != FormatId::kIq1M) {
    std::memcpy(block, &half, sizeof half);
    return;
  }
  for (int i = 0; i < 4; ++i) {
    uint8_t& upper = block[48 + 2 * i + 1];
    upper = static_cast<uint8_t>((upper & 15) | (half >> 4 * i & 15) << 4);
  }
}

/// Bytes of 256 inputs of a row.
inline size_t bytes_of_block(const WeightFormat& f) {
  return f.tile_bytes(kCodebookInputs) / kTileRows;
}
inline size_t bytes_of_blocks(const WeightFormat& f, int32_t cols) {
  return static_cast<size_t>((cols + kCodebookInputs - 1) / kCodebookInputs) * bytes_of_block(f);
}

/// Rows of blocks with any indices and signs; the f16 are about `size` and of both signs.
template <class Rng>
std::vector<uint8_t> random_blocks(const WeightFormat& f, int n_rows, int32_t cols, float size,
                                   Rng& rng) {
  std::vector<uint8_t> blocks(static_cast<size_t>(n_rows) * bytes_of_blocks(f, cols));
  for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(rng());
  std::normal_distribution<float> normal(0.0f, size);
  for (size_t at = 0; at < blocks.size(); at += bytes_of_block(f)) {
    put_half_in_block(f, f32_to_f16(normal(rng)), &blocks[at]);
  }
  return blocks;
}

template <class Rng>
void pack_random_blocks(const WeightFormat& f, int n_rows, int32_t cols, float size, Rng& rng,
                        uint8_t* tile) {
  const std::vector<uint8_t> blocks = random_blocks(f, n_rows, cols, size, rng);
  f.pack_blocks(blocks.data(), static_cast<int64_t>(bytes_of_blocks(f, cols)), n_rows, cols, tile);
}

}  // namespace moe
