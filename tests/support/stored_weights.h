// SPDX-License-Identifier: MIT
#pragma once
// Random weights, what the quantisers make of them, by how much that differs, and tiles that are
// not valid.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "quant/formats.h"
#include "quant/quantise.h"

namespace moe {

inline std::vector<float> normals(size_t n, unsigned seed, float deviation) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return values;
}

/// At most 16 rows w (rows, cols) as a format with scales in the tile stores them.
inline std::vector<float> stored(const WeightFormat& f, const std::vector<float>& w, int32_t cols,
                                 const float* importance = nullptr) {
  const int n_rows = static_cast<int>(w.size()) / cols;
  std::vector<uint8_t> tile(f.tile_bytes(cols), 0xEE);
  const Status status = f.quantise_tile(w.data(), cols, n_rows, cols, importance, tile.data());
  EXPECT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(f.find_invalid(tile.data(), tile.size()), -1) << f.name;
  std::vector<float> out(w.size());
  for (int r = 0; r < n_rows; ++r) {
    read_weights(f, tile.data(), cols, r, &out[static_cast<size_t>(r * cols)]);
  }
  return out;
}

/// Writes each of `bits` over each pair of bytes of a tile in turn. Expects that find_invalid()
/// says which 64 bytes hold the pair if is_bad(its place, bits), and that nothing is wrong
/// otherwise.
template <class IsBad>
void expect_invalid_found(const WeightFormat& f, std::initializer_list<uint16_t> bits,
                          const IsBad& is_bad) {
  std::vector<uint8_t> tile(f.tile_bytes(300), 0x11);
  for (size_t at = 0; at < tile.size(); at += 2) {
    uint16_t before;
    std::memcpy(&before, &tile[at], sizeof before);
    for (const uint16_t value : bits) {
      std::memcpy(&tile[at], &value, sizeof value);
      ASSERT_EQ(f.find_invalid(tile.data(), tile.size()),
                is_bad(at, value) ? static_cast<int64_t>(at / 64) : -1)
          << f.name << " byte " << at << " bits " << value;
    }
    std::memcpy(&tile[at], &before, sizeof before);
  }
}
inline bool is_finite_half(uint16_t bits) { return (bits & 0x7C00) != 0x7C00; }

/// Rows w (rows, cols) as int8 stores them.
inline std::vector<float> stored_by_row(const std::vector<float>& w, int32_t cols) {
  std::vector<int8_t> codes(static_cast<size_t>(cols));
  std::vector<float> out;
  for (size_t at = 0; at < w.size(); at += codes.size()) {
    float scale = 0;
    EXPECT_TRUE(int8_row(&w[at], cols, codes.data(), &scale).ok());
    for (const int8_t code : codes) out.push_back(static_cast<float>(code) * scale);
  }
  return out;
}

/// Each square times the importance of its column; none: 1.
inline double squared_error(const std::vector<float>& wanted, const std::vector<float>& found,
                            const std::vector<float>& importance = {}) {
  double sum = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = double{wanted[i]} - double{found[i]};
    sum += d * d * (importance.empty() ? 1.0 : double{importance[i % importance.size()]});
  }
  return sum;
}

/// Norm of the difference over that of the weights.
inline double relative_error(const std::vector<float>& wanted, const std::vector<float>& found,
                             const std::vector<float>& importance = {}) {
  const std::vector<float> zeros(wanted.size());
  return std::sqrt(squared_error(wanted, found, importance) /
                   squared_error(wanted, zeros, importance));
}

}  // namespace moe
