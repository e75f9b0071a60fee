// SPDX-License-Identifier: MIT
#pragma once
// Traces of routing: which experts each layer chose for each token, as CSV (docs/traces.md).

#include <cstdint>
#include <string>
#include <vector>

namespace moe_cli {

/// One expert selected by a layer for a token.
struct TraceUse {
  bool decode;  // false: prompt
  int32_t step;
  int32_t layer;
  int32_t slot;  // 0: the best
  int32_t expert;
  float weight;
};

struct Trace {
  int32_t n_layers = 0;
  int32_t n_experts = 0;
  int32_t n_used = 0;          // maximum experts per token and layer
  std::vector<TraceUse> uses;  // in order of computation
};

/// CallError names the file and the faulty line.
Trace read_trace(const std::string& path);

}  // namespace moe_cli
