// SPDX-License-Identifier: MIT
#pragma once
// AVX2 with FMA and F16C: sixteen lanes are two registers. For files of this folder compiled with
// these instructions.
#include <immintrin.h>

#include "kernels/cpu/isa/look_up.h"
#include "kernels/cpu/table.h"

namespace moe {

extern const CpuKernels kernels_avx2;

namespace {

/// Everything except products of codes, which the derived tables define.
struct Avx2 {
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };
  struct M {
    __m256 a, b;
  };
  using B = I;
  using X4 = __m256i;
  static constexpr int kMaxTokens = 4;
  static constexpr int kTiles = 1;
  static constexpr int kStreams = 4;
  static constexpr int kSums = 4;
  static constexpr int kLightDots = 1;
  static constexpr bool kDigitsInPlace = false;
  static constexpr bool kMatrix = false;

  MOE_INLINE const CpuKernels& shared() { return kernels_avx2; }

  // Memory.
  MOE_INLINE __m256i tail_mask(int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
  }
  MOE_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  MOE_INLINE F load_n(const float* p, int n) {
    return {_mm256_maskload_ps(p, tail_mask(n)), _mm256_maskload_ps(p + 8, tail_mask(n - 8))};
  }
  MOE_INLINE void store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  MOE_INLINE void store_n(float* p, F x, int n) {
    _mm256_maskstore_ps(p, tail_mask(n), x.a);
    _mm256_maskstore_ps(p + 8, tail_mask(n - 8), x.b);
  }
  MOE_INLINE I load(const int32_t* p) {
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
  MOE_INLINE I load_n(const int32_t* p, int n) {
    return {_mm256_maskload_epi32(p, tail_mask(n)), _mm256_maskload_epi32(p + 8, tail_mask(n - 8))};
  }
  MOE_INLINE void store(int32_t* p, I x) {
    __m256i* q = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(q, x.a);
    _mm256_storeu_si256(q + 1, x.b);
  }
  MOE_INLINE __m128i load_bytes_n(const void* p, int n) {
    __m128i r = _mm_setzero_si128();
    __builtin_memcpy(&r, p, static_cast<size_t>(n));
    return r;
  }
  MOE_INLINE I widen_i8(__m128i x) {
    return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
  }
  MOE_INLINE I load_i8(const int8_t* p) {
    return widen_i8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  MOE_INLINE I load_i8_n(const int8_t* p, int n) { return widen_i8(load_bytes_n(p, n)); }
  MOE_INLINE __m128i narrow_i8(I x) {
    const __m256i h = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    return _mm_packs_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  }
  MOE_INLINE void store_i8(int8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_i8(x));
  }
  MOE_INLINE void store_i8_n(int8_t* p, I x, int n) {
    const __m128i r = narrow_i8(x);
    __builtin_memcpy(p, &r, static_cast<size_t>(n));
  }
  MOE_INLINE I load_u8(const uint8_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p + 8);
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(q))};
  }
  MOE_INLINE I load_u16(const uint8_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)),
            _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
  }
  MOE_INLINE I look_up(const uint32_t* table, const uint32_t* index) {
    return {look_up_eight(table, index), look_up_eight(table, index + 8)};
  }
  MOE_INLINE F load_f16(const uint16_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
  }
  MOE_INLINE F load_f16_n(const uint16_t* p, int n) {
    uint16_t part[16] = {};
    __builtin_memcpy(part, p, 2 * static_cast<size_t>(n));
    return load_f16(part);
  }
  MOE_INLINE void store_f16(uint16_t* p, F x) {
    __m128i* q = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
  }
  MOE_INLINE void store_f16_n(uint16_t* p, F x, int n) {
    uint16_t part[16];
    store_f16(part, x);
    __builtin_memcpy(p, part, 2 * static_cast<size_t>(n));
  }
  MOE_INLINE F load_bf16(const uint16_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    const I wide = {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)),
                    _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
    return from_bits(shl<16>(wide));
  }
  MOE_INLINE void prefetch_near(const void* p) { __builtin_prefetch(p, 0, 3); }
  MOE_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }

  // Float lanes.
  MOE_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  MOE_INLINE F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  MOE_INLINE F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  MOE_INLINE F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  MOE_INLINE F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  MOE_INLINE F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  MOE_INLINE F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  MOE_INLINE F sqrt(F x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
  MOE_INLINE F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  MOE_INLINE F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  MOE_INLINE F abs(F x) { return from_bits(bit_and(bits(x), set1_i(0x7FFFFFFF))); }
  MOE_INLINE F neg(F x) { return from_bits(bit_xor(bits(x), set1_i(INT32_MIN))); }
  MOE_INLINE F swap_pairs(F x) {
    return {_mm256_permute_ps(x.a, 0xB1), _mm256_permute_ps(x.b, 0xB1)};
  }
  MOE_INLINE float reduce_add(F x) {
    const __m256 w = _mm256_add_ps(x.a, x.b);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
  }
  MOE_INLINE float reduce_max(F x) {
    const __m256 w = _mm256_max_ps(x.a, x.b);
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
  }

  // Masks.
  MOE_INLINE M lt(F x, F y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
  }
  MOE_INLINE M le(F x, F y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)};
  }
  MOE_INLINE M eq(F x, F y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)};
  }
  MOE_INLINE M as_mask(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
  MOE_INLINE M lt(I x, I y) {
    return as_mask({_mm256_cmpgt_epi32(y.a, x.a), _mm256_cmpgt_epi32(y.b, x.b)});
  }
  MOE_INLINE M eq(I x, I y) {
    return as_mask({_mm256_cmpeq_epi32(x.a, y.a), _mm256_cmpeq_epi32(x.b, y.b)});
  }
  MOE_INLINE F select(M m, F x, F y) {
    return {_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
  }
  MOE_INLINE I select(M m, I x, I y) { return bits(select(m, from_bits(x), from_bits(y))); }
  MOE_INLINE int count(M m) {
    const int n = _mm256_movemask_ps(m.a) | (_mm256_movemask_ps(m.b) << 8);
    return __builtin_popcount(static_cast<unsigned>(n));
  }

  // Integer lanes; sums and products wrap.
  MOE_INLINE I zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  MOE_INLINE I set1_i(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  MOE_INLINE I add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
  MOE_INLINE I sub(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
  MOE_INLINE I mul(I x, I y) {
    return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
  }
  MOE_INLINE I min(I x, I y) { return {_mm256_min_epi32(x.a, y.a), _mm256_min_epi32(x.b, y.b)}; }
  MOE_INLINE I max(I x, I y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
  MOE_INLINE I bit_and(I x, I y) {
    return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
  }
  MOE_INLINE I bit_or(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
  MOE_INLINE I bit_xor(I x, I y) {
    return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
  }
  MOE_INLINE I shl(I x, int n) { return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
  MOE_INLINE I shr(I x, int n) { return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)}; }
  template <int n>
  MOE_INLINE I shl(I x) {
    return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
  }
  template <int n>
  MOE_INLINE I shr(I x) {
    return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
  }
  template <int n>
  MOE_INLINE I sar(I x) {
    return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
  }
  MOE_INLINE int32_t reduce_add(I x) {
    const __m256i w = _mm256_add_epi32(x.a, x.b);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
  }
  MOE_INLINE int32_t reduce_max(I x) {
    const __m256i w = _mm256_max_epi32(x.a, x.b);
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
  }

  // Conversions.
  MOE_INLINE I bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
  MOE_INLINE F from_bits(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
  MOE_INLINE I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
  MOE_INLINE F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

  // Blocks of weight codes.
  MOE_INLINE I block_lanes(const uint8_t* p) {
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
  MOE_INLINE B load_block(const uint8_t* p) { return block_lanes(p); }
  MOE_INLINE X4 broadcast4(const int8_t* p) {
    int32_t x;
    __builtin_memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
  }
  MOE_INLINE I set1_bytes(char x) { return {_mm256_set1_epi8(x), _mm256_set1_epi8(x)}; }
  template <int f, int p = 0>
  MOE_INLINE B field(B w) {
    const I mask = set1_bytes(static_cast<char>(3 << (2 * p)));
    if constexpr (f == p) return bit_and(w, mask);
    constexpr int n = 2 * (f > p ? f - p : p - f);
    if constexpr (f < p) {
      return bit_and({_mm256_slli_epi16(w.a, n), _mm256_slli_epi16(w.b, n)}, mask);
    }
    return bit_and({_mm256_srli_epi16(w.a, n), _mm256_srli_epi16(w.b, n)}, mask);
  }
  template <int half>
  MOE_INLINE B nibble(B w) {
    const I mask = set1_bytes(15);
    if constexpr (half == 0) return bit_and(w, mask);
    return bit_and({_mm256_srli_epi16(w.a, 4), _mm256_srli_epi16(w.b, 4)}, mask);
  }
  MOE_INLINE B join(B a, B b) { return bit_or(a, b); }
  MOE_INLINE B values16(const uint8_t* table, B codes) {
    const __m128i t = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return {look_up(t, codes.a), look_up(t, codes.b)};
  }
  template <int n>
  MOE_INLINE B rows_above(B w) {
    const __m256i before_a = _mm256_permute2x128_si256(w.b, w.a, 0x21);
    const __m256i before_b = _mm256_permute2x128_si256(w.a, w.b, 0x21);
    return {_mm256_alignr_epi8(w.a, before_a, 16 - 4 * n),
            _mm256_alignr_epi8(w.b, before_b, 16 - 4 * n)};
  }
  template <int n>
  MOE_INLINE void exchange(B& x, B& y) {
    const B above = {_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
    const B swapped = bit_and(bit_xor(above, y), set1_bytes(n == 1 ? 0x55 : 0x33));
    x = bit_xor(x, {_mm256_slli_epi16(swapped.a, n), _mm256_slli_epi16(swapped.b, n)});
    y = bit_xor(y, swapped);
  }
  /// Subtracts c * power, where c is the digit 0, 1 or 2: at most two subtractions.
  MOE_INLINE __m256i rest_of(__m256i v, char power) {
    const __m256i p = _mm256_set1_epi8(power);
    const __m256i once = _mm256_min_epu8(v, _mm256_sub_epi8(v, p));
    return _mm256_min_epu8(once, _mm256_sub_epi8(once, p));
  }
  MOE_INLINE __m256i look_up(__m128i table, __m256i index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
  }
  /// The digit from the lower four bits of what was subtracted; other bits of 162 must be masked.
  MOE_INLINE __m256i digit_of(__m256i taken, bool mask) {
    const __m128i digits = _mm_setr_epi8(0, 1, 2, 1, 0, 0, 2, 0, 0, 1, 0, 1, 0, 0, 0, 0);
    return look_up(digits, mask ? _mm256_and_si256(taken, _mm256_set1_epi8(15)) : taken);
  }
  MOE_INLINE void unpack3_half(__m256i v, __m256i out[5]) {
    const __m128i units = _mm_setr_epi8(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0);
    const __m128i threes = _mm_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0);
    const __m256i below_81 = rest_of(v, 81);
    const __m256i below_27 = rest_of(below_81, 27);
    const __m256i below_9 = rest_of(below_27, 9);
    out[4] = digit_of(_mm256_sub_epi8(v, below_81), true);
    out[3] = digit_of(_mm256_sub_epi8(below_81, below_27), false);
    out[2] = digit_of(_mm256_sub_epi8(below_27, below_9), false);
    out[1] = look_up(threes, below_9);
    out[0] = look_up(units, below_9);
  }
  MOE_INLINE void unpack3(B w, B out[5]) {
    __m256i a[5];
    __m256i b[5];
    unpack3_half(w.a, a);
    unpack3_half(w.b, b);
    MOE_UNROLL
    for (int f = 0; f < 5; ++f) out[f] = {a[f], b[f]};
  }
};

}  // namespace
}  // namespace moe
