// SPDX-License-Identifier: MIT
#pragma once
// The best candidates of a row of logits, and tokens in JSON.

#include "cli/common.h"

namespace moe_cli {

struct Candidate {
  int32_t id;
  float logit;
  double logprob;
};

/// The `top` largest of `n` logits, best first; the lower id of equal ones.
std::vector<Candidate> best_candidates(const float* logits, size_t n, int top);

/// The id and, if the model has a tokenizer, its spelling as "piece".
Json token_json(const moe_model* model, int32_t id);
/// The same with the log-probability and, unless n_top is 0, the candidates as "top".
Json token_json(const moe_model* model, const moe_token_logprob& chosen,
                const moe_token_logprob* top, size_t n_top);
/// Adds --logprobs, of at least `least` candidates.
CLI::Option* add_logprobs(CLI::App& app, int& n_top, int least, const std::string& what);

}  // namespace moe_cli
