#pragma once
// Which experts decoding uses, and how many bytes of weights it therefore reads.

#include <cstdint>
#include <vector>

#include "include/moe_c.h"

namespace moe_cli {

/// Counted step by step: the sub-tokens of a token, and the sessions of a step, share what they
/// read.
class UsedExperts {
 public:
  /// `keep_counting`: the sessions go on counting their routing, from zero, after each step.
  UsedExperts(const moe_model* model, bool keep_counting);

  /// Around each step of the sessions.
  void begin(const std::vector<moe_session*>& sessions);
  void end(const std::vector<moe_session*>& sessions);

  /// In one MoE layer for one token, on average; 0 in a dense model.
  double experts_per_token() const;
  /// Weights for one token, on average.
  double bytes_per_token() const;

 private:
  void end_layer(const std::vector<moe_session*>& sessions, size_t layer);

  std::vector<std::vector<uint64_t>> expert_bytes_;  // by layer; empty for a dense one
  std::vector<bool> used_;
  bool keep_counting_;
  uint64_t other_bytes_ = 0;  // read for every step
  uint64_t n_moe_layers_ = 0;
  uint64_t n_steps_ = 0;
  uint64_t n_tokens_ = 0;
  uint64_t n_used_ = 0;      // of each session's own
  uint64_t read_bytes_ = 0;  // of experts
};

}  // namespace moe_cli
