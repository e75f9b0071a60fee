// SPDX-License-Identifier: MIT
#pragma once
// How a dense model is split into experts.

#include <cstdint>

namespace moe {

struct SplitOptions {
  int32_t n_experts = 0;  // per FFN; 0: no split
  /// Groups neurons with similar weights; false: neighbours.
  bool clusters = false;
};

}  // namespace moe
