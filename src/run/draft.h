// SPDX-License-Identifier: MIT
#pragma once
// Drafts the next tokens from earlier text: prompt lookup decoding (Saxena, 2023).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moe {

inline constexpr size_t kMaxDraft = 16;  // tokens drafted at once

/// Continues a text as it continued where its last tokens occurred before, the longest match first.
/// Drafts as many tokens as have paid so far: a drafted token is right with a probability that
/// follows from earlier ones with as long a match, and costs what a pass with drafted tokens took
/// longer. One thread.
class Drafter {
 public:
  /// most: 0..kMaxDraft tokens at once.
  explicit Drafter(size_t most);

  /// Writes a draft of the tokens after `text` to `out`, at most `room` and those of the
  /// constructor, and returns their number.
  size_t draft(std::span<const int32_t> text, size_t room, int32_t* out);
  /// How many of the last drafted tokens, from the first on, were right, and how long their pass
  /// took.
  void learn(size_t n_right, double seconds);
  /// How long a pass without a draft took.
  void learn_single(double seconds) { single_.add(seconds); }

 private:
  static constexpr size_t kLengths = 8;
  // For drafted token i of the last match: had those before it been given, the match would be
  // longer by i. Long ones share the last rate.
  double& rate(size_t i) { return rates_[std::min(length_ + i, kLengths) - 1]; }

  /// A mean that follows changes.
  struct Mean {
    double value = 0;
    void add(double x) { value = value == 0 ? x : value + kStep * (x - value); }
  };
  static constexpr double kStep = 0.1;

  size_t most_;
  size_t n_drafted_ = 0;
  size_t length_ = 0;       // of the last match
  double rates_[kLengths];  // share of drafted tokens that were right
  Mean single_;             // seconds
  double cost_;             // of a drafted token, in passes without a draft
};

}  // namespace moe
