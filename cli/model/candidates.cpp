// SPDX-License-Identifier: MIT
// Sorts the most probable tokens and writes tokens with their text and log-probability.
#include "cli/model/candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/help/help.h"

namespace moe_cli {
namespace {

constexpr int kMostLogprobs = 64;  // of the library

}  // namespace

std::vector<Candidate> best_candidates(const float* logits, size_t n, int top) {
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const size_t n_best = std::min(static_cast<size_t>(top), n);
  std::partial_sort(order.begin(), order.begin() + static_cast<long>(n_best), order.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = logits[a];
                      const float y = logits[b];
                      return x != y ? x > y : a < b;
                    });
  const double max = *std::max_element(logits, logits + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(logits[i] - max);
  std::vector<Candidate> out;
  for (size_t i = 0; i < n_best; ++i) {
    const float v = logits[order[i]];
    out.push_back({order[i], v, v - max - std::log(sum)});
  }
  return out;
}

Json token_json(const moe_model* model, int32_t id) {
  Json json = {{"id", id}};
  const moe_tokenizer* tokenizer = moe_model_tokenizer(model);
  const char* piece = tokenizer == nullptr ? nullptr : moe_tokenizer_piece(tokenizer, id);
  if (piece != nullptr) json["piece"] = piece;
  return json;
}

Json token_json(const moe_model* model, const moe_token_logprob& chosen,
                const moe_token_logprob* top, size_t n_top) {
  Json json = token_json(model, chosen.token);
  json["logprob"] = chosen.logprob;
  for (size_t i = 0; i < n_top && top[i].token >= 0; ++i) {
    if (i == 0) json["top"] = Json::array();
    json["top"].push_back(token_json(model, top[i], nullptr, 0));
  }
  return json;
}

CLI::Option* add_logprobs(CLI::App& app, int& n_top, int least, const std::string& what) {
  return app.add_option("--logprobs", n_top, what)
      ->transform(integer_in(least, kMostLogprobs))
      ->option_text("N");
}

}  // namespace moe_cli
