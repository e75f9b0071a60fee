// SPDX-License-Identifier: MIT
#pragma once
// The random ends of the names of temporary files, by which a killed process's are found again.

#include <cstdint>
#include <string_view>

#include "src/base/string.h"

namespace moe {

inline constexpr size_t kSuffixLength = 6;
/// No capitals: some file systems ignore case.
inline constexpr std::string_view kSuffixLetters = "abcdefghijklmnopqrstuvwxyz0123456789";

/// Writes a terminated suffix made of random bits.
inline void put_suffix(uint64_t bits, char (&text)[kSuffixLength + 1]) {
  constexpr uint64_t kLetters = kSuffixLetters.size();
  for (size_t i = 0; i < kSuffixLength; ++i, bits /= kLetters) {
    text[i] = kSuffixLetters[static_cast<size_t>(bits % kLetters)];
  }
  text[kSuffixLength] = '\0';
}

/// True if the name is the prefix and a suffix.
inline bool has_suffix(std::string_view name, std::string_view prefix) {
  return name.size() == prefix.size() + kSuffixLength && name.starts_with(prefix) &&
         slice(name, prefix.size()).find_first_not_of(kSuffixLetters) == name.npos;
}

}  // namespace moe
