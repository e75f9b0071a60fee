// SPDX-License-Identifier: MIT
#pragma once
// Statistics of the inputs of a model's matrices: the mean square of each input, which weights the
// error of its column, and if memory permits the second moments.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/convert/calibration/feedback.h"

namespace moe {

/// Sums over the inputs of a matrix, or of several with the same inputs.
struct InputSums {
  int32_t n_inputs = 0;
  uint64_t n_tokens = 0;        // tokens that reached it
  std::vector<double> squares;  // sums
  std::unique_ptr<SecondMoments> moments;
  std::shared_ptr<const SecondMoments> average;  // over all experts of the layer
  // Mean squares divided by their mean; empty if inputs are all zero or not finite.
  std::vector<float> importance;

  /// Replaces the sums by their means in f32 times n_tokens, and derives `importance`.
  void finish();
};

/// Second moments of all experts of a layer, by average_of() in keys.h.
using Averages = std::map<std::string, std::shared_ptr<SecondMoments>>;
/// `average` may be null. Moments that are not finite add nothing.
void add_to_average(const SecondMoments& moments, std::shared_ptr<SecondMoments>* average);

class InputStatistics {
 public:
  explicit InputStatistics(ThreadPool& pool) : pool_(pool) {}

  /// By the matrix's name as in Slot::short_name(). Null: no token reached it, or it is not a
  /// linear matrix. One value per input.
  const float* importance(const std::string& name) const;
  /// Also null without moments.
  std::shared_ptr<const Feedback> feedback(const std::string& name);
  uint64_t n_tokens(const std::string& name) const;
  /// Null: unknown.
  const InputSums* find(const std::string& name) const;

  void put(const std::string& name, std::shared_ptr<const InputSums> sums) {
    sums_[name] = std::move(sums);
  }
  /// Call before moments change or are freed.
  void forget_feedback() { last_.reset(); }

 private:
  ThreadPool& pool_;
  std::map<std::string, std::shared_ptr<const InputSums>> sums_;
  // The most recent: matrices with the same inputs are consecutive.
  const SecondMoments* last_moments_ = nullptr;
  std::shared_ptr<const Feedback> last_;
};

}  // namespace moe
