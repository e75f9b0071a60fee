#pragma once
// SentencePiece's precompiled character map: a double array of byte strings and what they become.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// Layout (SentencePiece, normalizer.cc): bytes of the array (u32), the array (u32 units of the
/// Darts double array), then zero-terminated replacements. Views the bytes it is made of.
class Charsmap final {
 public:
  Status create(std::span<const uint8_t> data);

  /// What the shortest entry that begins `text` becomes; false where there is none.
  bool transform(std::string_view text, std::string_view* replacement) const;
  /// The normal form of valid UTF-8, appended: grapheme by grapheme where one is short and listed,
  /// otherwise character by character, as `tokenizers` does.
  Status normalise(std::string_view text, Array<char>& out) const;

 private:
  uint32_t unit(size_t i) const {
    uint32_t value;
    std::memcpy(&value, units_ + 4 * i, 4);
    return value;
  }
  const uint8_t* units_ = nullptr;
  size_t n_units_ = 0;
  std::string_view replacements_;
};

}  // namespace moe
