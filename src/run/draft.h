// SPDX-License-Identifier: MIT
#pragma once
// Drafts the next tokens: from earlier text (prompt lookup decoding, Saxena 2023), or as a layer of
// the model guesses them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moe {

inline constexpr size_t kMaxDraft = 16;  // tokens drafted at once

/// A model that guesses tokens.
struct Guesser {
  /// Guesses at most n tokens after the text, and says how long that took.
  size_t (*guess)(void* user, size_t n, int32_t* out, double* seconds) = nullptr;
  void* user = nullptr;
};

/// Continues a text as it continued where its last tokens occurred before, the longest match first,
/// or as a guesser does, whichever is expected to save more. Drafts as many tokens as have paid so
/// far: a drafted token is right with a probability that follows from earlier ones, with as long a
/// match or at the same place behind the text, and costs what a pass with drafted tokens took
/// longer, and what guessing took. All guesses together may lose the time of two passes and a
/// fiftieth of all. One thread.
class Drafter {
 public:
  /// most: 0..kMaxDraft tokens at once.
  explicit Drafter(size_t most);

  /// Writes a draft of the tokens after `text` to `out`, at most `room` and those of the
  /// constructor, and returns their number. guesser: null: from the text alone.
  size_t draft(std::span<const int32_t> text, size_t room, int32_t* out,
               const Guesser* guesser = nullptr);
  /// How many of the last drafted tokens, from the first on, were right, and how long their pass
  /// took.
  void learn(size_t n_right, double seconds);
  /// How long a pass without a draft took.
  void learn_single(double seconds) {
    single_.add(seconds);
    since_single_ = 0;
    ++n_tokens_;
  }
  /// False while guesses are not expected to pay.
  bool guesses() const { return may_lose() && guess_rates_[0] > cost_ + guess_cost_; }

 private:
  static constexpr size_t kLengths = 8;
  // For drafted token i of the last match: had those before it been given, the match would be
  // longer by i. Long ones share the last rate.
  double& rate(size_t i) { return rates_[std::min(length_ + i, kLengths) - 1]; }
  // For guessed token i.
  double& guess_rate(size_t i) { return guess_rates_[std::min(i, kLengths - 1)]; }

  /// How many tokens to draft, and how many passes that is expected to save.
  struct Plan {
    size_t n = 0;
    double gain = 0;
  };
  template <class Rate>
  Plan plan(Rate rate_of, double cost, size_t room);
  Plan plan_guesses(size_t room);
  bool may_lose() const;
  void learn_guesses(size_t n_right, double seconds);
  void learn_failure();

  /// A mean that follows changes.
  struct Mean {
    double value = 0;
    void add(double x) { value = value == 0 ? x : value + kStep * (x - value); }
  };
  static constexpr double kStep = 0.1;

  size_t most_;
  size_t n_drafted_ = 0;
  size_t length_ = 0;             // of the last match
  double rates_[kLengths];        // share of drafted tokens that were right
  double guess_rates_[kLengths];  // the same of guesses
  Mean single_;                   // seconds
  double cost_;                   // of a drafted token, in passes without a draft
  double guess_cost_;             // of guessing it
  bool guessed_ = false;          // the last draft
  double guess_seconds_ = 0;      // it took
  double lost_ = 0;               // by guesses, in passes; below 0: gained
  double n_tokens_ = 0;
  int32_t since_single_ = 0;  // passes with guesses
};

}  // namespace moe
