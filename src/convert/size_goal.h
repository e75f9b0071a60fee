// SPDX-License-Identifier: MIT
#pragma once
// Says how much a conversion to a size may take.

#include <cstdint>

namespace moe {

/// A conversion may take so much; neither: as much as its formats need.
struct SizeGoal {
  uint64_t most_bytes = 0;  // of the file, uncompressed
  double most_bits = 0;     // of a weight, mean over all matrices

  bool given() const { return most_bytes != 0 || most_bits != 0; }
};

/// Throws MOE_ERR_ARGUMENT for both at once and for numbers without a meaning.
void check_goal(const SizeGoal& goal);

}  // namespace moe
