// SPDX-License-Identifier: MIT
#pragma once
// Sets of Unicode characters, and how texts spell them.

#include "src/grammar/network.h"

namespace moe::grammar {

inline constexpr uint32_t kMaxChar = 0x10FFFF;

struct CharRange {
  uint32_t low;
  uint32_t high;
  friend bool operator==(const CharRange&, const CharRange&) = default;
};

/// How a text writes a character: as itself in UTF-8, or inside a string of JSON, where quotes,
/// backslashes and control characters are escaped and characters above ASCII may be. A printable
/// character of ASCII has one spelling, except for "/" and "\/".
enum class Spelling : uint8_t { kPlain, kJson };

/// Sorted ranges with gaps between them; never surrogates, which are not characters.
class CharSet final {
 public:
  explicit CharSet(const Allocator& allocator) : ranges_(allocator) {}

  Status add(uint32_t low, uint32_t high) { return ranges_.push({low, high}); }
  Status add(const CharSet& other) {
    return ranges_.append(other.ranges_.data(), other.ranges_.size());
  }
  /// Sorts and joins what was added.
  Status close();
  /// All others; after close().
  Status invert();
  bool contains(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  std::span<const CharRange> ranges() const { return ranges_.span(); }

 private:
  Array<CharRange> ranges_;
};

/// A node that reads one character of the set (after close()).
uint32_t read_char(Network& network, std::span<const CharRange> set, Spelling spelling,
                   uint32_t next);
inline uint32_t read_char(Network& network, uint32_t c, Spelling spelling, uint32_t next) {
  const CharRange one = {c, c};
  return read_char(network, {&one, 1}, spelling, next);
}
/// A node that reads a text (valid UTF-8).
uint32_t read_text(Network& network, std::string_view text, Spelling spelling, uint32_t next);

}  // namespace moe::grammar
