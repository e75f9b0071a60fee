// SPDX-License-Identifier: MIT
#pragma once
// Experts used while decoding, and the resulting bytes of weights read.

#include <cstdint>
#include <vector>

#include "include/moe_c.h"

namespace moe_cli {

/// Counted per step: sub-tokens of a token, and sessions of a step, share reads.
class UsedExperts {
 public:
  /// `keep_counting`: leaves counting on in the sessions, from zero, after each step.
  UsedExperts(const moe_model* model, bool keep_counting);

  /// Call begin() before and end() after each step of the sessions.
  void begin(const std::vector<moe_session*>& sessions);
  void end(const std::vector<moe_session*>& sessions);

  /// Per MoE layer and token, on average; 0 in a dense model.
  double experts_per_token() const;
  /// Weights per token, on average.
  double bytes_per_token() const;

 private:
  void end_layer(const std::vector<moe_session*>& sessions, size_t layer);

  std::vector<std::vector<uint64_t>> expert_bytes_;  // by layer; empty for a dense one
  std::vector<bool> used_;
  bool keep_counting_;
  uint64_t other_bytes_ = 0;  // read in every step
  uint64_t n_moe_layers_ = 0;
  uint64_t n_steps_ = 0;
  uint64_t n_tokens_ = 0;
  uint64_t n_used_ = 0;      // of each session's own
  uint64_t read_bytes_ = 0;  // of experts
};

}  // namespace moe_cli
