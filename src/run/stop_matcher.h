#pragma once
// Finds stop strings in a text that comes in pieces, and holds back what may become one.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// The text up to the first place where a stop string is complete (in the order of its last byte)
/// is given out, nothing of the stop string is, and text is held back only while it is the start of
/// one. Each string is followed by its own Knuth-Morris-Pratt automaton. One thread.
class StopMatcher {
 public:
  explicit StopMatcher(const Allocator& allocator);

  /// MOE_ERR_ARGUMENT for an empty string, MOE_ERR_RANGE for more or longer ones than the limits
  /// allow, MOE_ERR_TEXT for one that starts inside a UTF-8 character.
  Status init(std::span<const std::string_view> stops);

  /// Takes the next piece. *ready is what may be shown now, valid until the next call.
  Status push(std::string_view text, std::string_view* ready);
  /// The text is over: gives what was held back. Empty after a stop.
  std::string_view finish();
  /// A stop string was found; push() then gives nothing more.
  bool stopped() const { return stopped_; }

 private:
  struct Pattern {
    size_t begin;  // in bytes_ and failure_
    size_t length;
    size_t matched;  // bytes of it that end the text so far
  };
  void advance(Pattern& p, char byte) const;

  Array<Pattern> patterns_;
  Array<char> bytes_;
  Array<uint32_t> failure_;
  Array<char> held_;
  size_t n_given_ = 0;  // first bytes of held_ that were given out
  bool stopped_ = false;
};

}  // namespace moe
