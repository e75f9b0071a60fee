// SPDX-License-Identifier: MIT
#pragma once
// Finds stop strings in a text received in pieces, and withholds what may become one.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// Text is reported up to the first complete stop string (in order of its last byte), no part of
/// which is reported; only text that could begin a stop string is withheld. Each string has its own
/// Knuth-Morris-Pratt automaton. One thread.
class StopMatcher {
 public:
  explicit StopMatcher(const Allocator& allocator);

  /// MOE_ERR_ARGUMENT for an empty string, MOE_ERR_RANGE beyond the limits, MOE_ERR_TEXT for one
  /// that starts inside a UTF-8 character.
  Status init(std::span<const std::string_view> stops);
  /// The errors of init().
  static Status check(std::span<const std::string_view> stops);

  /// Takes the next piece. *ready is the text that may be reported now, valid until the next call.
  /// `ends`: no stop string continues beyond this piece, so nothing is withheld.
  Status push(std::string_view text, std::string_view* ready, bool ends = false);
  /// At the end of the text: returns the withheld text. Empty after a stop.
  std::string_view finish();
  /// A stop string was found; push() then returns nothing.
  bool stopped() const { return found_ >= 0; }
  /// Its index among those of init(), the longest of several that end at the same byte; -1: none.
  int found() const { return found_; }

 private:
  struct Pattern {
    size_t begin;  // in bytes_ and failure_
    size_t length;
    size_t matched;  // bytes of it that match the end of the text
  };
  void advance(Pattern& p, char byte) const;

  Array<Pattern> patterns_;
  Array<char> bytes_;
  Array<uint32_t> failure_;
  Array<char> held_;
  size_t n_given_ = 0;  // bytes of held_ that were reported
  int found_ = -1;
};

}  // namespace moe
