#pragma once
// Looks for a forbidden bit pattern at the speed of memory.

#include <cstdint>
#include <cstring>

namespace moe {

/// Index of the first 64-byte block in which bad(word) is not 0 for one of its 64-bit words, or -1.
/// The last block may have 32 bytes.
template <class Bad>
int64_t find_block(const uint8_t* data, size_t bytes, Bad bad) {
  for (size_t at = 0; at < bytes; at += 64) {
    const size_t n_words = bytes - at < 64 ? (bytes - at) / 8 : 8;
    uint64_t words[8] = {};
    std::memcpy(words, data + at, n_words * 8);
    uint64_t found = 0;
    for (size_t i = 0; i < n_words; ++i) found |= bad(words[i]);
    if (found != 0) return static_cast<int64_t>(at / 64);
  }
  return -1;
}

}  // namespace moe
