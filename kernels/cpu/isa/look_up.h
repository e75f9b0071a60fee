// SPDX-License-Identifier: MIT
#pragma once
// Look-ups in tables for the instruction sets of x86. For files of this folder.
#include <immintrin.h>

#include "src/base/inline.h"

namespace moe {
namespace {

/// table[index[i]], i = 0 .. 3. Two indices are loaded at once: what a vector has just stored can
/// be loaded once a cycle only, and a gather takes longer.
MOE_INLINE __m128i look_up_four(const uint32_t* table, const uint32_t* index) {
  uint64_t first;
  uint64_t second;
  __builtin_memcpy(&first, index, 8);
  __builtin_memcpy(&second, index + 2, 8);
  const auto entry = [&](uint64_t i) __attribute__((always_inline)) {
    return static_cast<int>(table[i]);
  };
  __m128i four = _mm_cvtsi32_si128(entry(first & 0xFFFFFFFFu));
  four = _mm_insert_epi32(four, entry(first >> 32), 1);
  four = _mm_insert_epi32(four, entry(second & 0xFFFFFFFFu), 2);
  return _mm_insert_epi32(four, entry(second >> 32), 3);
}
MOE_INLINE __m256i look_up_eight(const uint32_t* table, const uint32_t* index) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(look_up_four(table, index)),
                                 look_up_four(table, index + 4), 1);
}

}  // namespace
}  // namespace moe
