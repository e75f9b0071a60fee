// SPDX-License-Identifier: MIT
// Computes divergences of rows in double, and sums them up with their squares.
#include "cli/compare/divergence.h"

#include <algorithm>
#include <cmath>

namespace moe_cli {
namespace {

constexpr int32_t kMostRanges = 8;

double mean_of(double sum, uint64_t n) { return n == 0 ? 0 : sum / static_cast<double>(n); }

}  // namespace

Estimate RunningMean::estimate() const {
  const double mean = mean_of(sum_, n_);
  if (n_ < 2) return {mean, 0};
  const double variance = std::max(squares_ / static_cast<double>(n_) - mean * mean, 0.0);
  return {mean, std::sqrt(variance / static_cast<double>(n_ - 1))};
}

void log_softmax(float* row, size_t n) {
  const float largest = *std::max_element(row, row + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(double{row[i]} - double{largest});
  const double log_sum = std::log(sum) + double{largest};
  for (size_t i = 0; i < n; ++i) row[i] = static_cast<float>(double{row[i]} - log_sum);
}

double divergence(const float* p, const float* q, size_t n, double floor) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    const double log_p = p[i];
    if (log_p > floor) sum += std::exp(log_p) * (log_p - double{q[i]});
  }
  return sum;
}

int32_t best_of(const float* row, size_t n) {
  return static_cast<int32_t>(std::max_element(row, row + n) - row);
}

Divergence::Divergence(int32_t first, int32_t n_positions) : first_(first) {
  const int32_t n = std::max(n_positions - first, 1);
  const int32_t n_ranges = std::min(n, kMostRanges);
  range_length_ = (n + n_ranges - 1) / n_ranges;
  for (int32_t at = first; at < first + n; at += range_length_) {
    Positions range;
    range.first = at;
    range.last = std::min(at + range_length_, first + n) - 1;
    ranges_.push_back(range);
  }
}

void Divergence::add(int32_t position, int32_t token, const float* reference, const float* model,
                     size_t n, double floor) {
  const double of_reference = -double{reference[token]}, of_model = -double{model[token]};
  const double kl = divergence(reference, model, n, floor);
  const bool same = best_of(reference, n) == best_of(model, n);
  reference_.add(of_reference);
  model_.add(of_model);
  difference_.add(of_model - of_reference);
  kl_mean_.add(kl);
  kl_.push_back(static_cast<float>(kl));
  same_.add(same ? 1 : 0);
  Positions& range = ranges_[static_cast<size_t>((position - first_) / range_length_)];
  ++range.n;
  range.kl += kl;
  range.same_best += same ? 1 : 0;
}

double Divergence::kl_quantile(double share) const {
  if (kl_.empty()) return 0;
  std::vector<float> sorted = kl_;
  std::sort(sorted.begin(), sorted.end());
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(below);
  return (1 - part) * double{sorted[below]} + part * double{sorted[above]};
}

std::vector<Divergence::Positions> Divergence::by_position() const {
  std::vector<Positions> ranges = ranges_;
  for (Positions& range : ranges) {
    range.kl = mean_of(range.kl, range.n);
    range.same_best = mean_of(range.same_best, range.n);
  }
  return ranges;
}

}  // namespace moe_cli
