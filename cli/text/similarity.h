// SPDX-License-Identifier: MIT
#pragma once
// How similar vectors of texts are.

#include <cstddef>
#include <vector>

namespace moe_cli {

/// The cosine of every pair of n vectors, rows of (n, d): (n, n). 0 where a vector is zero.
std::vector<float> similarities(const std::vector<float>& vectors, size_t n, size_t d);

}  // namespace moe_cli
