#pragma once
// What the matrices of a model were multiplied with: for each input the mean of its squares, which
// says how much an error of its weights matters, and where there is room the second moments.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/convert/calibration/feedback.h"

namespace moe {

/// Of a matrix, or of several that are multiplied with the same.
struct InputSums {
  int32_t n_inputs = 0;
  uint64_t n_tokens = 0;        // that reached it
  std::vector<double> squares;  // sums
  std::unique_ptr<SecondMoments> moments;
  std::shared_ptr<const SecondMoments> average;  // of all experts' in the layer
  // Mean squares divided by their own mean; empty: inputs that are no numbers say nothing, and
  // neither do zeros alone.
  std::vector<float> importance;

  void find_importance();
};

class InputStatistics {
 public:
  explicit InputStatistics(ThreadPool& pool) : pool_(pool) {}

  /// All by the matrix's name as in Slot::short_name(). Null: no token reached it, or it is no
  /// linear matrix. The array has one number for each input.
  const float* importance(const std::string& name) const;
  /// Null too where there are no moments.
  std::shared_ptr<const Feedback> feedback(const std::string& name);
  uint64_t n_tokens(const std::string& name) const;
  /// Null: unknown.
  const InputSums* find(const std::string& name) const;
  ThreadPool& pool() { return pool_; }

  void put(const std::string& name, std::shared_ptr<const InputSums> sums) {
    sums_[name] = std::move(sums);
  }
  /// To be called before moments change or go.
  void forget_feedback() { last_.reset(); }

 private:
  ThreadPool& pool_;
  std::map<std::string, std::shared_ptr<const InputSums>> sums_;
  // The last: matrices with the same inputs follow one another.
  const SecondMoments* last_moments_ = nullptr;
  std::shared_ptr<const Feedback> last_;
};

}  // namespace moe
