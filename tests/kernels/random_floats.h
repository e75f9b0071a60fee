// SPDX-License-Identifier: MIT
#pragma once
// Random data, and comparison of bits.

#include <cstdint>
#include <random>
#include <vector>

namespace moe {

inline std::vector<float> random_floats(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> d(0, scale);
  std::vector<float> v(n);
  for (float& x : v) x = d(rng);
  return v;
}

/// Index of the first element whose bits differ, or -1.
inline int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (__builtin_bit_cast(uint32_t, a[i]) != __builtin_bit_cast(uint32_t, b[i])) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

}  // namespace moe
