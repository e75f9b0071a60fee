// SPDX-License-Identifier: MIT
#pragma once
// Finite automata over characters, for sets of texts that no expression states: those that match
// two patterns, have a length, or are not one of some names.

#include "src/grammar/expression.h"

namespace moe::grammar {

/// Deterministic. State 0 is the start; a class of characters without a next state leads nowhere.
class Automaton final {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  enum class Op : uint8_t { kAnd, kOr, kWithout };

  explicit Automaton(const Allocator& a) : cuts_(a), next_(a), accepts_(a) {}

  /// MOE_ERR_UNSUPPORTED if it takes too many states.
  Status from_expression(const Expressions& e, uint32_t expr, Match match);
  /// All texts of min to max characters (kNoLimit).
  Status from_lengths(uint32_t min, uint32_t max);
  /// All texts but these.
  Status from_all_but(std::span<const std::string_view> texts);
  /// Texts that are in both, in one of the two, or in `a` and not in `b`.
  Status combine(const Automaton& a, const Automaton& b, Op op);

  // For automata made in other ways: first the characters that begin a class, from 0 on, sorted.
  Status set_cuts(std::span<const uint32_t> cuts) { return cuts_.append(cuts.data(), cuts.size()); }
  Status add_state(bool accepts, uint32_t* out);
  void set_next(uint32_t state, size_t cls, uint32_t to) { next_[state * cuts_.size() + cls] = to; }

  bool empty() const;  // no text at all; after trim() no state leads nowhere
  Status trim();
  bool contains(std::string_view text) const;
  uint32_t build(Network& network, Spelling spelling, uint32_t next) const;
  size_t n_states() const { return accepts_.size(); }
  size_t n_cells() const { return next_.size(); }
  const Allocator& allocator() const { return cuts_.allocator(); }

 private:
  friend class Subsets;
  uint32_t next(uint32_t state, size_t cls) const {
    return state == kNone ? kNone : next_[state * cuts_.size() + cls];
  }
  bool accepts(uint32_t state) const { return state != kNone && accepts_[state] != 0; }
  size_t class_of(uint32_t c) const;

  Array<uint32_t> cuts_;  // the first character of each class
  Array<uint32_t> next_;  // (states, classes)
  Array<uint8_t> accepts_;
};

/// *out: a node that reads the texts that the expression, which may have anchors, matches.
Status build_match(const Expressions& e, uint32_t expr, Match match, Spelling spelling,
                   Network& network, uint32_t next, uint32_t* out);

}  // namespace moe::grammar
