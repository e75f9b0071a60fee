// SPDX-License-Identifier: MIT
#pragma once
// How far one model's predictions of a text are from another's: sums over the tokens of the text.

#include <stddef.h>

#include <cstdint>
#include <vector>

namespace moe_cli {

/// A mean of independent values with its standard error.
struct Estimate {
  double mean = 0;
  double error = 0;
};

/// The mean of values that come one by one.
class RunningMean {
 public:
  void add(double value) {
    ++n_;
    sum_ += value;
    squares_ += value * value;
  }
  uint64_t count() const { return n_; }
  Estimate estimate() const;

 private:
  uint64_t n_ = 0;
  double sum_ = 0;
  double squares_ = 0;
};

/// Replaces a row of n logits by log-probabilities, summed in double.
void log_softmax(float* row, size_t n);

/// The divergence KL(p || q) in nats of two rows of n log-probabilities. Tokens with a p of at most
/// `floor` count as never predicted by p: -infinity leaves out none.
double divergence(const float* p, const float* q, size_t n, double floor);

/// The index of the largest value; the lowest of equal ones.
int32_t best_of(const float* row, size_t n);

/// Sums over scored tokens.
class Divergence {
 public:
  /// Tokens at position `first` to n_positions - 1 of each window will be scored.
  Divergence(int32_t first, int32_t n_positions);

  /// The row at `position` that predicts `token`: log-probabilities of the reference and the model.
  void add(int32_t position, int32_t token, const float* reference, const float* model, size_t n,
           double floor);

  uint64_t n_scored() const { return kl_.size(); }
  Estimate reference_nll() const { return reference_.estimate(); }
  Estimate model_nll() const { return model_.estimate(); }
  /// The model's negative log-likelihood minus the reference's, token by token.
  Estimate nll_difference() const { return difference_.estimate(); }
  Estimate kl() const { return kl_mean_.estimate(); }
  /// The value that `share` of the divergences do not exceed, interpolated; share in 0..1.
  double kl_quantile(double share) const;
  Estimate same_best() const { return same_.estimate(); }

  /// A range of positions in the window, with the means of its tokens.
  struct Positions {
    int32_t first = 0;
    int32_t last = 0;
    uint64_t n = 0;
    double kl = 0;
    double same_best = 0;
  };
  /// At most eight ranges of about equal length.
  std::vector<Positions> by_position() const;

 private:
  int32_t first_;
  std::vector<Positions> ranges_;  // with sums in place of means
  int32_t range_length_;
  RunningMean reference_, model_, difference_, kl_mean_, same_;
  std::vector<float> kl_;
};

}  // namespace moe_cli
