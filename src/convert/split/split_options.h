#pragma once
// How a dense model is split into experts.

#include <cstdint>

namespace moe {

struct SplitOptions {
  int32_t n_experts = 0;  // of each FFN; 0: nothing is split
  /// Neurons of like weights together; false: neighbours.
  bool clusters = false;
};

}  // namespace moe
