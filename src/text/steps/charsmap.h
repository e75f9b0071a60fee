// SPDX-License-Identifier: MIT
#pragma once
// SentencePiece's precompiled character map: a double array from byte strings to replacements.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// Layout (SentencePiece, normalizer.cc): size of the array in bytes (u32), the array (u32 units of
/// the Darts double array), then zero-terminated replacements. Refers to the caller's bytes.
class Charsmap final {
 public:
  Status create(std::span<const uint8_t> data);

  /// The replacement of the shortest entry that begins `text`; false if none.
  bool transform(std::string_view text, std::string_view* replacement) const;
  /// Appends the normal form of valid UTF-8: by grapheme if it is short and listed, otherwise by
  /// character, like `tokenizers`.
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
