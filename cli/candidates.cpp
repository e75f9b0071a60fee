#include "cli/candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moe_cli {

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

}  // namespace moe_cli
