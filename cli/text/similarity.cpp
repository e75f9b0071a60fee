// SPDX-License-Identifier: MIT
// Cosines of all pairs of vectors.
#include "cli/text/similarity.h"

#include <cmath>

namespace moe_cli {
namespace {

double dot(const float* a, const float* b, size_t d) {
  double sum = 0;
  for (size_t i = 0; i < d; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

}  // namespace

std::vector<float> similarities(const std::vector<float>& vectors, size_t n, size_t d) {
  std::vector<float> out(n * n);
  const auto row = [&](size_t i) { return vectors.data() + i * d; };
  std::vector<double> length(n);
  for (size_t i = 0; i < n; ++i) length[i] = std::sqrt(dot(row(i), row(i), d));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      const double both = length[i] * length[j];
      const double cosine = both > 0 ? dot(row(i), row(j), d) / both : 0;
      out[i * n + j] = out[j * n + i] = static_cast<float>(cosine);
    }
  }
  return out;
}

}  // namespace moe_cli
