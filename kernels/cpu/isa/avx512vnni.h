// SPDX-License-Identifier: MIT
#pragma once
// AVX-512 with F, BW, VL, VNNI and VBMI: sixteen lanes are one register. For files of this folder
// compiled with these instructions.
#include <immintrin.h>

#include "kernels/cpu/isa/look_up.h"
#include "kernels/cpu/table.h"

namespace moe {

extern const CpuKernels kernels_avx512vnni;

namespace {

struct RestTable {
  uint8_t v[128];
};
/// The lower four base-3 digits of a byte as 2-bit fields.
constexpr RestTable make_rest_table() {
  RestTable t = {};
  for (int i = 0; i < 81; ++i) {
    t.v[i] = static_cast<uint8_t>(i % 3 | i / 3 % 3 << 2 | i / 9 % 3 << 4 | i / 27 << 6);
  }
  return t;
}
constexpr RestTable kFieldsOfRest = make_rest_table();

struct Isa {
  struct F {
    __m512 v;
  };
  struct I {
    __m512i v;
  };
  struct M {
    __mmask16 v;
  };
  struct B {
    __m512i v;
  };
  struct X4 {
    __m512i v;
  };
  using S = I;
  static constexpr int kMaxTokens = 8;
  static constexpr int kTiles = 2;
  static constexpr int kStreams = 4;
  static constexpr int kTernaryStreams = 4;
  static constexpr int kSums = 16;
  static constexpr int kLightDots = 2;
  static constexpr int kInPlace = 4;
  static constexpr bool kDigitsInPlace = true;
  static constexpr bool kMatrix = false;
  static constexpr int kSmallBlocks = 0;
  static constexpr int kInt8Offset = 128;

  MOE_INLINE const CpuKernels& shared() { return kernels_avx512vnni; }

  // Memory.
  MOE_INLINE __mmask16 tail_mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  MOE_INLINE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
  MOE_INLINE F load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(tail_mask(n), p)}; }
  MOE_INLINE void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
  MOE_INLINE void store_n(float* p, F a, int n) { _mm512_mask_storeu_ps(p, tail_mask(n), a.v); }
  MOE_INLINE I load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
  MOE_INLINE I load_n(const int32_t* p, int n) {
    return {_mm512_maskz_loadu_epi32(tail_mask(n), p)};
  }
  MOE_INLINE void store(int32_t* p, I a) { _mm512_storeu_si512(p, a.v); }
  MOE_INLINE I load_i8(const int8_t* p) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  MOE_INLINE I load_i8_n(const int8_t* p, int n) {
    return {_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(tail_mask(n), p))};
  }
  MOE_INLINE void store_i8(int8_t* p, I a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
  }
  MOE_INLINE void store_i8_n(int8_t* p, I a, int n) {
    _mm_mask_storeu_epi8(p, tail_mask(n), _mm512_cvtepi32_epi8(a.v));
  }
  MOE_INLINE I load_u8(const uint8_t* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  MOE_INLINE I load_u16(const uint8_t* p) {
    return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  MOE_INLINE I look_up(const uint32_t* table, const uint32_t* index) {
    return {_mm512_inserti64x4(_mm512_castsi256_si512(look_up_eight(table, index)),
                               look_up_eight(table, index + 8), 1)};
  }
  MOE_INLINE F load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  MOE_INLINE F load_f16_n(const uint16_t* p, int n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(tail_mask(n), p))};
  }
  // With an explicit mask: gcc's macro for the unmasked form converts -1 when not inlined.
  MOE_INLINE __m256i to_f16(F a) {
    return _mm512_maskz_cvtps_ph(__mmask16{0xffff}, a.v, _MM_FROUND_TO_NEAREST_INT);
  }
  MOE_INLINE void store_f16(uint16_t* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_f16(a));
  }
  MOE_INLINE void store_f16_n(uint16_t* p, F a, int n) {
    _mm256_mask_storeu_epi16(p, tail_mask(n), to_f16(a));
  }
  MOE_INLINE F load_bf16(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
  }
  MOE_INLINE void prefetch_near(const void* p) { __builtin_prefetch(p, 0, 3); }
  MOE_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }

  // Float lanes.
  MOE_INLINE F zero() { return {_mm512_setzero_ps()}; }
  MOE_INLINE F set1(float a) { return {_mm512_set1_ps(a)}; }
  MOE_INLINE F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
  MOE_INLINE F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
  MOE_INLINE F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
  MOE_INLINE F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
  MOE_INLINE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  MOE_INLINE F sqrt(F a) { return {_mm512_sqrt_ps(a.v)}; }
  MOE_INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
  MOE_INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
  MOE_INLINE F abs(F a) { return from_bits(bit_and(bits(a), set1_i(0x7FFFFFFF))); }
  MOE_INLINE F neg(F a) { return from_bits(bit_xor(bits(a), set1_i(INT32_MIN))); }
  MOE_INLINE F swap_pairs(F a) { return {_mm512_permute_ps(a.v, 0xB1)}; }
  MOE_INLINE __m256 upper_half(F a) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
  }
  MOE_INLINE float reduce_add(F a) {
    const __m256 w = _mm256_add_ps(_mm512_castps512_ps256(a.v), upper_half(a));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
  }
  MOE_INLINE float reduce_max(F a) {
    const __m256 w = _mm256_max_ps(_mm512_castps512_ps256(a.v), upper_half(a));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
  }

  // Masks.
  MOE_INLINE M lt(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
  MOE_INLINE M le(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
  MOE_INLINE M eq(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
  MOE_INLINE M lt(I a, I b) { return {_mm512_cmplt_epi32_mask(a.v, b.v)}; }
  MOE_INLINE M eq(I a, I b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
  MOE_INLINE F select(M m, F a, F b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }
  MOE_INLINE I select(M m, I a, I b) { return {_mm512_mask_blend_epi32(m.v, b.v, a.v)}; }
  MOE_INLINE int count(M m) { return __builtin_popcount(m.v); }

  // Integer lanes; sums and products wrap.
  MOE_INLINE I zero_i() { return {_mm512_setzero_si512()}; }
  MOE_INLINE I set1_i(int32_t a) { return {_mm512_set1_epi32(a)}; }
  MOE_INLINE I add(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
  MOE_INLINE I sub(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
  MOE_INLINE I mul(I a, I b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
  MOE_INLINE I min(I a, I b) { return {_mm512_min_epi32(a.v, b.v)}; }
  MOE_INLINE I max(I a, I b) { return {_mm512_max_epi32(a.v, b.v)}; }
  MOE_INLINE I bit_and(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
  MOE_INLINE I bit_or(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
  MOE_INLINE I bit_xor(I a, I b) { return {_mm512_xor_si512(a.v, b.v)}; }
  // Not _mm512_slli_epi32: without optimisation gcc wants a literal there.
  MOE_INLINE I shl(I a, int n) { return {(__m512i)((__v16su)a.v << n)}; }
  MOE_INLINE I shr(I a, int n) { return {(__m512i)((__v16su)a.v >> n)}; }
  template <int n>
  MOE_INLINE I shl(I a) {
    return {_mm512_slli_epi32(a.v, n)};
  }
  template <int n>
  MOE_INLINE I shr(I a) {
    return {_mm512_srli_epi32(a.v, n)};
  }
  template <int n>
  MOE_INLINE I sar(I a) {
    return {_mm512_srai_epi32(a.v, n)};
  }
  // Not _mm512_reduce_add_epi32: gcc ends it with a signed addition, which must not overflow.
  MOE_INLINE int32_t reduce_add(I a) {
    const __m256i halves =
        _mm256_add_epi32(_mm512_castsi512_si256(a.v), _mm512_extracti64x4_epi64(a.v, 1));
    const __m128i quarters =
        _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    const __m128i pairs = _mm_add_epi32(quarters, _mm_shuffle_epi32(quarters, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xb1)));
  }
  MOE_INLINE int32_t reduce_max(I a) { return _mm512_reduce_max_epi32(a.v); }

  // Conversions.
  MOE_INLINE I bits(F a) { return {_mm512_castps_si512(a.v)}; }
  MOE_INLINE F from_bits(I a) { return {_mm512_castsi512_ps(a.v)}; }
  MOE_INLINE I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
  MOE_INLINE F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }

  // Blocks of weight codes.
  MOE_INLINE B load_block(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  MOE_INLINE I block_lanes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  MOE_INLINE X4 broadcast4(const int8_t* p) {
    int32_t x;
    __builtin_memcpy(&x, p, 4);
    return {_mm512_set1_epi32(x)};
  }
  template <int f, int p = 0>
  MOE_INLINE B field(B w) {
    const __m512i mask = _mm512_set1_epi8(static_cast<char>(3 << (2 * p)));
    if constexpr (f == p) return {_mm512_and_si512(w.v, mask)};
    constexpr int n = 2 * (f > p ? f - p : p - f);
    if constexpr (f < p) return {_mm512_and_si512(_mm512_slli_epi16(w.v, n), mask)};
    return {_mm512_and_si512(_mm512_srli_epi16(w.v, n), mask)};
  }
  template <int half>
  MOE_INLINE B nibble(B w) {
    const __m512i mask = _mm512_set1_epi8(15);
    if constexpr (half == 0) return {_mm512_and_si512(w.v, mask)};
    return {_mm512_and_si512(_mm512_srli_epi16(w.v, 4), mask)};
  }
  MOE_INLINE B join(B a, B b) { return {_mm512_or_si512(a.v, b.v)}; }
  MOE_INLINE B values16(const uint8_t* table, B codes) {
    const __m128i t = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), codes.v)};
  }
  MOE_INLINE B bit_xor(B a, B b) { return {_mm512_xor_si512(a.v, b.v)}; }
  template <int n>
  MOE_INLINE B rows_above(B w) {
    return {_mm512_alignr_epi32(w.v, w.v, 16 - n)};
  }
  template <int n>
  MOE_INLINE void exchange(B& a, B& b) {
    const __m512i differs = _mm512_xor_si512(_mm512_srli_epi16(a.v, n), b.v);
    const __m512i swapped = _mm512_and_si512(differs, _mm512_set1_epi8(n == 1 ? 0x55 : 0x33));
    a.v = _mm512_xor_si512(a.v, _mm512_slli_epi16(swapped, n));
    b.v = _mm512_xor_si512(b.v, swapped);
  }
  MOE_INLINE __m512i min_less(__m512i v, char power) {
    return _mm512_min_epu8(v, _mm512_sub_epi8(v, _mm512_set1_epi8(power)));
  }
  // Two conditional subtractions of 81 extract the top digit; v - rest is 0, 81 or 162, whose bits
  // 6 and 7 are the digit. A table of 81 entries converts the rest to four 2-bit fields.
  MOE_INLINE B fields_of_rest(B w, B* top) {
    const __m512i rest = min_less(min_less(w.v, 81), 81);
    *top = {_mm512_sub_epi8(w.v, rest)};
    const __m512i low = _mm512_loadu_si512(kFieldsOfRest.v);
    const __m512i high = _mm512_loadu_si512(kFieldsOfRest.v + 64);
    return {_mm512_permutex2var_epi8(low, rest, high)};
  }
  MOE_INLINE void unpack3(B w, B out[5]) {
    B top;
    const B four = fields_of_rest(w, &top);
    out[0] = field<0>(four);
    out[1] = field<1>(four);
    out[2] = field<2>(four);
    out[3] = field<3>(four);
    out[4] = field<3>(top);
  }
  MOE_INLINE void digits_in_place(B w, B out[5]) {
    const B four = fields_of_rest(w, &out[4]);
    out[0] = field<0, 0>(four);
    out[1] = field<1, 1>(four);
    out[2] = field<2, 2>(four);
    out[3] = field<3, 3>(four);
  }
  MOE_INLINE S zero_sum() { return zero_i(); }
  MOE_INLINE S dot_small(S s, B w, X4 x) { return {_mm512_dpbusd_epi32(s.v, w.v, x.v)}; }
  MOE_INLINE I widen(S s) { return s; }
  /// Uses w + 128: subtract kInt8Offset times the sum of x at the end.
  MOE_INLINE I dot_int8(I s, B w, X4 x) {
    const __m512i u = _mm512_xor_si512(w.v, _mm512_set1_epi8(static_cast<char>(0x80)));
    return {_mm512_dpbusd_epi32(s.v, u, x.v)};
  }
};

}  // namespace
}  // namespace moe
