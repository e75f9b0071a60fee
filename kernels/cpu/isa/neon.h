// SPDX-License-Identifier: MIT
#pragma once
// Armv8.2 with the dot product instructions: sixteen lanes are four registers. For files of this
// folder compiled with these instructions.
#include <arm_neon.h>

#include "kernels/cpu/table.h"

namespace moe {

extern const CpuKernels kernels_neon_dotprod;

namespace {

#define MOE_QUADS for (int q = 0; q < 4; ++q)
#define MOE_MAP(T, expr)     \
  T r;                       \
  MOE_QUADS r.v[q] = (expr); \
  return r

/// Base of the tables.
struct Neon {
  struct F {
    float32x4_t v[4];
  };
  struct I {
    int32x4_t v[4];
  };
  struct M {
    uint32x4_t v[4];
  };
  struct B {
    uint8x16_t v[4];
  };
  using X4 = int8x16_t;
  using S = I;
  static constexpr int kMaxTokens = 4;
  static constexpr int kTiles = 1;
  static constexpr int kStreams = 4;
  static constexpr int kTernaryStreams = 2;
  static constexpr int kSums = 4;
  static constexpr int kLightDots = 0;
  static constexpr int kInPlace = 2;
  static constexpr bool kDigitsInPlace = false;
  static constexpr int kSmallBlocks = 0;
  static constexpr int kInt8Offset = 0;

  MOE_INLINE const CpuKernels& shared() { return kernels_neon_dotprod; }

  // Memory.
  MOE_INLINE F load(const float* p) { MOE_MAP(F, vld1q_f32(p + 4 * q)); }
  MOE_INLINE F load_n(const float* p, int n) {
    float part[16] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    return load(part);
  }
  MOE_INLINE void store(float* p, F a) { MOE_QUADS vst1q_f32(p + 4 * q, a.v[q]); }
  MOE_INLINE void store_n(float* p, F a, int n) {
    float part[16];
    store(part, a);
    for (int i = 0; i < n; ++i) p[i] = part[i];
  }
  MOE_INLINE I load(const int32_t* p) { MOE_MAP(I, vld1q_s32(p + 4 * q)); }
  MOE_INLINE I load_n(const int32_t* p, int n) {
    int32_t part[16] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    return load(part);
  }
  MOE_INLINE void store(int32_t* p, I a) { MOE_QUADS vst1q_s32(p + 4 * q, a.v[q]); }
  MOE_INLINE I load_i8(const int8_t* p) {
    const int8x16_t x = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(x));
    const int16x8_t high = vmovl_high_s8(x);
    return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
             vmovl_high_s16(high)}};
  }
  MOE_INLINE I load_i8_n(const int8_t* p, int n) {
    int8_t part[16] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    return load_i8(part);
  }
  MOE_INLINE void store_i8(int8_t* p, I a) {
    const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
  MOE_INLINE void store_i8_n(int8_t* p, I a, int n) {
    int8_t part[16];
    store_i8(part, a);
    for (int i = 0; i < n; ++i) p[i] = part[i];
  }
  MOE_INLINE I widen_u16(uint16x8_t low, uint16x8_t high) {
    return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
             vreinterpretq_s32_u32(vmovl_high_u16(low)),
             vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
             vreinterpretq_s32_u32(vmovl_high_u16(high))}};
  }
  MOE_INLINE I load_u8(const uint8_t* p) {
    const uint8x16_t x = vld1q_u8(p);
    return widen_u16(vmovl_u8(vget_low_u8(x)), vmovl_high_u8(x));
  }
  MOE_INLINE I load_u16(const uint8_t* p) {
    return widen_u16(vreinterpretq_u16_u8(vld1q_u8(p)), vreinterpretq_u16_u8(vld1q_u8(p + 16)));
  }
  MOE_INLINE I look_up(const uint32_t* table, const uint32_t* index) {
    uint32_t entries[16];
    for (int i = 0; i < 16; ++i) entries[i] = table[index[i]];
    MOE_MAP(I, vreinterpretq_s32_u32(vld1q_u32(entries + 4 * q)));
  }
  MOE_INLINE F load_f16(const uint16_t* p) {
    MOE_MAP(F, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * q))));
  }
  MOE_INLINE F load_f16_n(const uint16_t* p, int n) {
    uint16_t part[16] = {};
    for (int i = 0; i < n; ++i) part[i] = p[i];
    return load_f16(part);
  }
  MOE_INLINE void store_f16(uint16_t* p, F a) {
    MOE_QUADS vst1_u16(p + 4 * q, vreinterpret_u16_f16(vcvt_f16_f32(a.v[q])));
  }
  MOE_INLINE void store_f16_n(uint16_t* p, F a, int n) {
    uint16_t part[16];
    store_f16(part, a);
    for (int i = 0; i < n; ++i) p[i] = part[i];
  }
  MOE_INLINE F load_bf16(const uint16_t* p) {
    MOE_MAP(F, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * q), 16)));
  }
  MOE_INLINE void prefetch_near(const void* p) { __builtin_prefetch(p, 0, 3); }
  MOE_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }

  // Float lanes.
  MOE_INLINE F zero() { MOE_MAP(F, vdupq_n_f32(0.0f)); }
  MOE_INLINE F set1(float a) { MOE_MAP(F, vdupq_n_f32(a)); }
  MOE_INLINE F add(F a, F b) { MOE_MAP(F, vaddq_f32(a.v[q], b.v[q])); }
  MOE_INLINE F sub(F a, F b) { MOE_MAP(F, vsubq_f32(a.v[q], b.v[q])); }
  MOE_INLINE F mul(F a, F b) { MOE_MAP(F, vmulq_f32(a.v[q], b.v[q])); }
  MOE_INLINE F div(F a, F b) { MOE_MAP(F, vdivq_f32(a.v[q], b.v[q])); }
  MOE_INLINE F fma(F a, F b, F c) { MOE_MAP(F, vfmaq_f32(c.v[q], a.v[q], b.v[q])); }
  MOE_INLINE F sqrt(F a) { MOE_MAP(F, vsqrtq_f32(a.v[q])); }
  // Not vminq and vmaxq: they treat NaN and signed zeros differently.
  MOE_INLINE F min(F a, F b) { return select(lt(a, b), a, b); }
  MOE_INLINE F max(F a, F b) { return select(lt(b, a), a, b); }
  MOE_INLINE F abs(F a) { MOE_MAP(F, vabsq_f32(a.v[q])); }
  MOE_INLINE F neg(F a) { MOE_MAP(F, vnegq_f32(a.v[q])); }
  MOE_INLINE F swap_pairs(F a) { MOE_MAP(F, vrev64q_f32(a.v[q])); }
  MOE_INLINE float reduce_add(F a) {
    const float32x4_t s = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
    const float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
  }
  MOE_INLINE float reduce_max(F a) {
    float v[16];
    store(v, a);
    for (int w = 8; w > 0; w /= 2) {
      for (int i = 0; i < w; ++i) v[i] = v[i] > v[i + w] ? v[i] : v[i + w];
    }
    return v[0];
  }

  // Masks.
  MOE_INLINE M lt(F a, F b) { MOE_MAP(M, vcltq_f32(a.v[q], b.v[q])); }
  MOE_INLINE M le(F a, F b) { MOE_MAP(M, vcleq_f32(a.v[q], b.v[q])); }
  MOE_INLINE M eq(F a, F b) { MOE_MAP(M, vceqq_f32(a.v[q], b.v[q])); }
  MOE_INLINE M lt(I a, I b) { MOE_MAP(M, vcltq_s32(a.v[q], b.v[q])); }
  MOE_INLINE M eq(I a, I b) { MOE_MAP(M, vceqq_s32(a.v[q], b.v[q])); }
  MOE_INLINE F select(M m, F a, F b) { MOE_MAP(F, vbslq_f32(m.v[q], a.v[q], b.v[q])); }
  MOE_INLINE I select(M m, I a, I b) { MOE_MAP(I, vbslq_s32(m.v[q], a.v[q], b.v[q])); }
  MOE_INLINE int count(M m) {
    uint32_t n = 0;
    MOE_QUADS n += vaddvq_u32(vshrq_n_u32(m.v[q], 31));
    return static_cast<int>(n);
  }

  // Integer lanes; sums and products wrap.
  MOE_INLINE I zero_i() { MOE_MAP(I, vdupq_n_s32(0)); }
  MOE_INLINE I set1_i(int32_t a) { MOE_MAP(I, vdupq_n_s32(a)); }
  MOE_INLINE I add(I a, I b) { MOE_MAP(I, vaddq_s32(a.v[q], b.v[q])); }
  MOE_INLINE I sub(I a, I b) { MOE_MAP(I, vsubq_s32(a.v[q], b.v[q])); }
  MOE_INLINE I mul(I a, I b) { MOE_MAP(I, vmulq_s32(a.v[q], b.v[q])); }
  MOE_INLINE I min(I a, I b) { MOE_MAP(I, vminq_s32(a.v[q], b.v[q])); }
  MOE_INLINE I max(I a, I b) { MOE_MAP(I, vmaxq_s32(a.v[q], b.v[q])); }
  MOE_INLINE I bit_and(I a, I b) { MOE_MAP(I, vandq_s32(a.v[q], b.v[q])); }
  MOE_INLINE I bit_or(I a, I b) { MOE_MAP(I, vorrq_s32(a.v[q], b.v[q])); }
  MOE_INLINE I bit_xor(I a, I b) { MOE_MAP(I, veorq_s32(a.v[q], b.v[q])); }
  MOE_INLINE I shl(I a, int n) { MOE_MAP(I, vshlq_s32(a.v[q], vdupq_n_s32(n))); }
  MOE_INLINE I shr(I a, int n) {
    MOE_MAP(I, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.v[q]), vdupq_n_s32(-n))));
  }
  template <int n>
  MOE_INLINE I shl(I a) {
    MOE_MAP(I, vshlq_n_s32(a.v[q], n));
  }
  template <int n>
  MOE_INLINE I shr(I a) {
    if constexpr (n == 0) return a;
    MOE_MAP(I, vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a.v[q]), n == 0 ? 1 : n)));
  }
  template <int n>
  MOE_INLINE I sar(I a) {
    if constexpr (n == 0) return a;
    MOE_MAP(I, vshrq_n_s32(a.v[q], n == 0 ? 1 : n));
  }
  MOE_INLINE int32_t reduce_add(I a) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
  }
  MOE_INLINE int32_t reduce_max(I a) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
  }

  // Conversions.
  MOE_INLINE I bits(F a) { MOE_MAP(I, vreinterpretq_s32_f32(a.v[q])); }
  MOE_INLINE F from_bits(I a) { MOE_MAP(F, vreinterpretq_f32_s32(a.v[q])); }
  MOE_INLINE I to_int(F a) { MOE_MAP(I, vcvtnq_s32_f32(a.v[q])); }
  MOE_INLINE F to_float(I a) { MOE_MAP(F, vcvtq_f32_s32(a.v[q])); }

  // Blocks of weight codes.
  MOE_INLINE B load_block(const uint8_t* p) { MOE_MAP(B, vld1q_u8(p + 16 * q)); }
  MOE_INLINE I block_lanes(const uint8_t* p) {
    MOE_MAP(I, vreinterpretq_s32_u8(vld1q_u8(p + 16 * q)));
  }
  MOE_INLINE X4 broadcast4(const int8_t* p) {
    int32_t x;
    __builtin_memcpy(&x, p, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(x));
  }
  template <int f, int p = 0>
  MOE_INLINE B field(B w) {
    const uint8x16_t mask = vdupq_n_u8(3 << (2 * p));
    if constexpr (f == p) {
      MOE_MAP(B, vandq_u8(w.v[q], mask));
    } else if constexpr (f < p) {
      MOE_MAP(B, vandq_u8(vshlq_n_u8(w.v[q], 2 * (p - f)), mask));
    } else {
      MOE_MAP(B, vandq_u8(vshrq_n_u8(w.v[q], 2 * (f - p)), mask));
    }
  }
  template <int half>
  MOE_INLINE B nibble(B w) {
    if constexpr (half == 0) {
      MOE_MAP(B, vandq_u8(w.v[q], vdupq_n_u8(15)));
    } else {
      MOE_MAP(B, vshrq_n_u8(w.v[q], 4));
    }
  }
  MOE_INLINE B join(B a, B b) { MOE_MAP(B, vorrq_u8(a.v[q], b.v[q])); }
  MOE_INLINE B values16(const uint8_t* table, B codes) {
    const uint8x16_t t = vld1q_u8(table);
    MOE_MAP(B, vqtbl1q_u8(t, codes.v[q]));
  }
  MOE_INLINE B bit_xor(B a, B b) { MOE_MAP(B, veorq_u8(a.v[q], b.v[q])); }
  template <int n>
  MOE_INLINE B rows_above(B w) {
    MOE_MAP(B, vextq_u8(w.v[(q + 3) % 4], w.v[q], 16 - 4 * n));
  }
  template <int n>
  MOE_INLINE void exchange(B& a, B& b) {
    const uint8x16_t mask = vdupq_n_u8(n == 1 ? 0x55 : 0x33);
    MOE_QUADS {
      const uint8x16_t swapped = vandq_u8(veorq_u8(vshrq_n_u8(a.v[q], n), b.v[q]), mask);
      a.v[q] = veorq_u8(a.v[q], vshlq_n_u8(swapped, n));
      b.v[q] = veorq_u8(b.v[q], swapped);
    }
  }
  // Subtracts the digit of value `power`: at most two subtractions; a true comparison is -1.
  MOE_INLINE uint8x16_t take_digit(uint8x16_t* v, uint8_t power) {
    const uint8x16_t p = vdupq_n_u8(power);
    const uint8x16_t once = vminq_u8(*v, vsubq_u8(*v, p));
    const uint8x16_t twice = vminq_u8(once, vsubq_u8(once, p));
    const uint8x16_t missed = vaddq_u8(vceqq_u8(*v, once), vceqq_u8(once, twice));
    *v = twice;
    return vaddq_u8(vdupq_n_u8(2), missed);
  }
  MOE_INLINE void unpack3(B w, B out[5]) {
    const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int f = 4; f > 0; --f) MOE_QUADS out[f].v[q] = take_digit(&w.v[q], power[f]);
    out[0] = w;
  }
  MOE_INLINE S zero_sum() { return zero_i(); }
  MOE_INLINE S dot_small(S s, B w, X4 x) { return dot_int8(s, w, x); }
  MOE_INLINE I widen(S s) { return s; }
  MOE_INLINE I dot_int8(I s, B w, X4 x) {
    MOE_MAP(I, vdotq_s32(s.v[q], vreinterpretq_s8_u8(w.v[q]), x));
  }
};

#undef MOE_MAP
#undef MOE_QUADS

}  // namespace
}  // namespace moe
