// SPDX-License-Identifier: MIT
#pragma once
// Searches for an invalid bit pattern at memory speed.

#include <cstdint>
#include <cstring>

namespace moe {

/// Index of the first 64-byte block in which bad(word) is nonzero for one of its 64-bit words, or
/// -1. The last block may have 32 bytes.
template <class Bad>
int64_t find_block(const uint8_t* data, size_t bytes, Bad bad) {
  uint64_t words[8];
  size_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    std::memcpy(words, data + at, 64);
    if ((bad(words[0]) | bad(words[1]) | bad(words[2]) | bad(words[3]) | bad(words[4]) |
         bad(words[5]) | bad(words[6]) | bad(words[7])) != 0) {
      return static_cast<int64_t>(at / 64);
    }
  }
  if (at == bytes) return -1;
  std::memcpy(words, data + at, 32);
  const uint64_t found = bad(words[0]) | bad(words[1]) | bad(words[2]) | bad(words[3]);
  return found != 0 ? static_cast<int64_t>(at / 64) : -1;
}

/// Nonzero if one of the four f16 in a word is NaN or infinite.
inline uint64_t infinite_halves(uint64_t v) {
  return ((v & 0x7C007C007C007C00u) + 0x0400040004000400u) & 0x8000800080008000u;
}

}  // namespace moe
