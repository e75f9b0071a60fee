#pragma once
// The best candidates of a row of logits.

#include "cli/common.h"

namespace moe_cli {

struct Candidate {
  int32_t id;
  float logit;
  double logprob;
};

/// The `top` largest of `n` logits, best first; the lower id of equal ones.
std::vector<Candidate> best_candidates(const float* logits, size_t n, int top);

}  // namespace moe_cli
