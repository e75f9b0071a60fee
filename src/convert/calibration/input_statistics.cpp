// SPDX-License-Identifier: MIT
// Turns sums into means, finds a matrix's statistics by name, and makes its error feedback.
#include "src/convert/calibration/input_statistics.h"

#include <cmath>

namespace moe {

void InputSums::finish() {
  for (double& square : squares) {
    if (n_tokens > 0) square = sum_of(saved_mean(square, n_tokens), n_tokens);
  }
  double total = 0;
  for (const double square : squares) total += square;
  const double mean = total / static_cast<double>(squares.size());
  importance.clear();
  if (!(mean > 0) || !std::isfinite(mean)) return;
  for (const double square : squares) importance.push_back(static_cast<float>(square / mean));
}

void add_to_average(const SecondMoments& moments, std::shared_ptr<SecondMoments>* average) {
  if (!moments.is_finite()) return;
  if (*average == nullptr) *average = std::make_shared<SecondMoments>(moments.n());
  (*average)->add(moments);
}

const InputSums* InputStatistics::find(const std::string& name) const {
  const auto found = sums_.find(name);
  return found == sums_.end() ? nullptr : found->second.get();
}

const float* InputStatistics::importance(const std::string& name) const {
  const InputSums* sums = find(name);
  return sums == nullptr || sums->importance.empty() ? nullptr : sums->importance.data();
}

std::shared_ptr<const Feedback> InputStatistics::feedback(const std::string& name) {
  const InputSums* sums = find(name);
  if (sums == nullptr || sums->moments == nullptr || sums->n_tokens == 0) return nullptr;
  if (last_ == nullptr || last_moments_ != sums->moments.get()) {
    last_.reset();
    last_ = std::make_shared<Feedback>(*sums->moments, sums->average.get(), pool_);
    last_moments_ = sums->moments.get();
  }
  return last_->known() ? last_ : nullptr;
}

uint64_t InputStatistics::n_tokens(const std::string& name) const {
  const InputSums* sums = find(name);
  return sums == nullptr ? 0 : sums->n_tokens;
}

}  // namespace moe
