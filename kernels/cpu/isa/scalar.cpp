// SPDX-License-Identifier: MIT
// Plain C++: always built, runs everywhere, the reference for the others.
#include "kernels/cpu/table.h"

namespace moe {

extern const CpuKernels kernels_scalar;

namespace {

#define MOE_LANES for (int i = 0; i < 16; ++i)
#define MOE_MAP(T, expr)   \
  T r;                     \
  MOE_LANES r.v[i] = expr; \
  return r

struct Isa {
  struct F {
    float v[16];
  };
  struct I {
    int32_t v[16];
  };
  struct M {
    bool v[16];
  };
  struct B {
    uint8_t v[64];
  };
  struct X4 {
    int8_t v[4];
  };
  using S = I;
  static constexpr int kMaxTokens = 1;
  static constexpr int kTiles = 1;
  static constexpr int kStreams = 1;
  static constexpr int kTernaryStreams = 1;
  static constexpr int kSums = 4;
  static constexpr int kLightDots = 0;
  static constexpr int kInPlace = 1;
  static constexpr bool kDigitsInPlace = false;
  static constexpr bool kMatrix = false;
  static constexpr int kSmallBlocks = 0;
  static constexpr int kInt8Offset = 0;

  MOE_INLINE uint32_t u32(int32_t a) { return static_cast<uint32_t>(a); }
  MOE_INLINE int32_t i32(uint32_t a) { return static_cast<int32_t>(a); }

  MOE_INLINE const CpuKernels& shared() { return kernels_scalar; }

  // Memory.
  MOE_INLINE F load(const float* p) { MOE_MAP(F, p[i]); }
  MOE_INLINE F load_n(const float* p, int n) { MOE_MAP(F, i < n ? p[i] : 0.0f); }
  MOE_INLINE void store(float* p, F a) { MOE_LANES p[i] = a.v[i]; }
  MOE_INLINE void store_n(float* p, F a, int n) {
    for (int i = 0; i < n; ++i) p[i] = a.v[i];
  }
  MOE_INLINE I load(const int32_t* p) { MOE_MAP(I, p[i]); }
  MOE_INLINE I load_n(const int32_t* p, int n) { MOE_MAP(I, i < n ? p[i] : 0); }
  MOE_INLINE void store(int32_t* p, I a) { MOE_LANES p[i] = a.v[i]; }
  MOE_INLINE I load_u8(const uint8_t* p) { MOE_MAP(I, p[i]); }
  MOE_INLINE I load_u16(const uint8_t* p) {
    uint16_t v[16];
    __builtin_memcpy(v, p, sizeof v);
    MOE_MAP(I, v[i]);
  }
  MOE_INLINE I look_up(const uint32_t* table, const uint32_t* index) {
    MOE_MAP(I, i32(table[index[i]]));
  }
  MOE_INLINE I load_i8(const int8_t* p) { MOE_MAP(I, p[i]); }
  MOE_INLINE I load_i8_n(const int8_t* p, int n) { MOE_MAP(I, i < n ? p[i] : 0); }
  MOE_INLINE void store_i8(int8_t* p, I a) { MOE_LANES p[i] = static_cast<int8_t>(a.v[i]); }
  MOE_INLINE void store_i8_n(int8_t* p, I a, int n) {
    for (int i = 0; i < n; ++i) p[i] = static_cast<int8_t>(a.v[i]);
  }
  MOE_INLINE F load_f16(const uint16_t* p) { MOE_MAP(F, f16_to_f32(p[i])); }
  MOE_INLINE F load_f16_n(const uint16_t* p, int n) { MOE_MAP(F, i < n ? f16_to_f32(p[i]) : 0.0f); }
  MOE_INLINE void store_f16(uint16_t* p, F a) { MOE_LANES p[i] = f32_to_f16(a.v[i]); }
  MOE_INLINE void store_f16_n(uint16_t* p, F a, int n) {
    for (int i = 0; i < n; ++i) p[i] = f32_to_f16(a.v[i]);
  }
  MOE_INLINE F load_bf16(const uint16_t* p) { MOE_MAP(F, bf16_to_f32(p[i])); }
  MOE_INLINE void prefetch_near(const void* p) { __builtin_prefetch(p, 0, 3); }
  MOE_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }

  // Float lanes.
  MOE_INLINE F zero() { MOE_MAP(F, 0.0f); }
  MOE_INLINE F set1(float a) { MOE_MAP(F, a); }
  MOE_INLINE F add(F a, F b) { MOE_MAP(F, a.v[i] + b.v[i]); }
  MOE_INLINE F sub(F a, F b) { MOE_MAP(F, a.v[i] - b.v[i]); }
  MOE_INLINE F mul(F a, F b) { MOE_MAP(F, a.v[i] * b.v[i]); }
  MOE_INLINE F div(F a, F b) { MOE_MAP(F, a.v[i] / b.v[i]); }
  MOE_INLINE F fma(F a, F b, F c) { MOE_MAP(F, __builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
  MOE_INLINE F sqrt(F a) { MOE_MAP(F, __builtin_sqrtf(a.v[i])); }
  MOE_INLINE F min(F a, F b) { MOE_MAP(F, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
  MOE_INLINE F max(F a, F b) { MOE_MAP(F, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
  MOE_INLINE F abs(F a) { return from_bits(bit_and(bits(a), set1_i(0x7FFFFFFF))); }
  MOE_INLINE F neg(F a) { return from_bits(bit_xor(bits(a), set1_i(i32(0x80000000u)))); }
  MOE_INLINE F swap_pairs(F a) { MOE_MAP(F, a.v[i ^ 1]); }
  MOE_INLINE float reduce_add(F a) {
    for (int w = 8; w > 0; w /= 2) {
      for (int i = 0; i < w; ++i) a.v[i] = a.v[i] + a.v[i + w];
    }
    return a.v[0];
  }
  MOE_INLINE float reduce_max(F a) {
    for (int w = 8; w > 0; w /= 2) {
      for (int i = 0; i < w; ++i) a.v[i] = a.v[i] > a.v[i + w] ? a.v[i] : a.v[i + w];
    }
    return a.v[0];
  }

  // Masks.
  MOE_INLINE M lt(F a, F b) { MOE_MAP(M, a.v[i] < b.v[i]); }
  MOE_INLINE M le(F a, F b) { MOE_MAP(M, a.v[i] <= b.v[i]); }
  MOE_INLINE M eq(F a, F b) { MOE_MAP(M, a.v[i] == b.v[i]); }
  MOE_INLINE M lt(I a, I b) { MOE_MAP(M, a.v[i] < b.v[i]); }
  MOE_INLINE M eq(I a, I b) { MOE_MAP(M, a.v[i] == b.v[i]); }
  MOE_INLINE F select(M m, F a, F b) { MOE_MAP(F, m.v[i] ? a.v[i] : b.v[i]); }
  MOE_INLINE I select(M m, I a, I b) { MOE_MAP(I, m.v[i] ? a.v[i] : b.v[i]); }
  MOE_INLINE int count(M m) {
    int n = 0;
    MOE_LANES n += m.v[i] ? 1 : 0;
    return n;
  }

  // Integer lanes; sums and products wrap.
  MOE_INLINE I zero_i() { MOE_MAP(I, 0); }
  MOE_INLINE I set1_i(int32_t a) { MOE_MAP(I, a); }
  MOE_INLINE I add(I a, I b) { MOE_MAP(I, i32(u32(a.v[i]) + u32(b.v[i]))); }
  MOE_INLINE I sub(I a, I b) { MOE_MAP(I, i32(u32(a.v[i]) - u32(b.v[i]))); }
  MOE_INLINE I mul(I a, I b) { MOE_MAP(I, i32(u32(a.v[i]) * u32(b.v[i]))); }
  MOE_INLINE I min(I a, I b) { MOE_MAP(I, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
  MOE_INLINE I max(I a, I b) { MOE_MAP(I, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
  MOE_INLINE I bit_and(I a, I b) { MOE_MAP(I, a.v[i] & b.v[i]); }
  MOE_INLINE I bit_or(I a, I b) { MOE_MAP(I, a.v[i] | b.v[i]); }
  MOE_INLINE I bit_xor(I a, I b) { MOE_MAP(I, a.v[i] ^ b.v[i]); }
  MOE_INLINE I shl(I a, int n) { MOE_MAP(I, i32(u32(a.v[i]) << n)); }
  MOE_INLINE I shr(I a, int n) { MOE_MAP(I, i32(u32(a.v[i]) >> n)); }
  template <int n>
  MOE_INLINE I shl(I a) {
    MOE_MAP(I, i32(u32(a.v[i]) << n));
  }
  template <int n>
  MOE_INLINE I shr(I a) {
    MOE_MAP(I, i32(u32(a.v[i]) >> n));
  }
  template <int n>
  MOE_INLINE I sar(I a) {
    MOE_MAP(I, a.v[i] >> n);
  }
  MOE_INLINE int32_t reduce_add(I a) {
    uint32_t s = 0;
    MOE_LANES s += u32(a.v[i]);
    return i32(s);
  }
  MOE_INLINE int32_t reduce_max(I a) {
    int32_t m = a.v[0];
    MOE_LANES m = a.v[i] > m ? a.v[i] : m;
    return m;
  }

  // Conversions.
  MOE_INLINE I bits(F a) {
    I r;
    __builtin_memcpy(&r, &a, sizeof r);
    return r;
  }
  MOE_INLINE F from_bits(I a) {
    F r;
    __builtin_memcpy(&r, &a, sizeof r);
    return r;
  }
  MOE_INLINE I to_int(F a) { MOE_MAP(I, static_cast<int32_t>(__builtin_rintf(a.v[i]))); }
  MOE_INLINE F to_float(I a) { MOE_MAP(F, static_cast<float>(a.v[i])); }

  // Blocks of weight codes.
  MOE_INLINE B load_block(const uint8_t* p) {
    B r;
    __builtin_memcpy(&r, p, 64);
    return r;
  }
  MOE_INLINE I block_lanes(const uint8_t* p) {
    I r;
    __builtin_memcpy(&r, p, 64);
    return r;
  }
  MOE_INLINE X4 broadcast4(const int8_t* p) {
    X4 r;
    __builtin_memcpy(&r, p, 4);
    return r;
  }
  template <int f, int p = 0>
  MOE_INLINE B field(B a) {
    for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>((a.v[i] >> 2 * f & 3) << 2 * p);
    return a;
  }
  template <int half>
  MOE_INLINE B nibble(B a) {
    for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] >> 4 * half & 15);
    return a;
  }
  MOE_INLINE B join(B a, B b) {
    for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] | b.v[i]);
    return a;
  }
  MOE_INLINE B bit_xor(B a, B b) {
    for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] ^ b.v[i]);
    return a;
  }
  template <int n>
  MOE_INLINE B rows_above(B a) {
    B r;
    for (int i = 0; i < 64; ++i) r.v[i] = a.v[(i + 64 - 4 * n) % 64];
    return r;
  }
  template <int n>
  MOE_INLINE void exchange(B& a, B& b) {
    for (int i = 0; i < 64; ++i) {
      const int swapped = (a.v[i] >> n ^ b.v[i]) & (n == 1 ? 0x55 : 0x33);
      a.v[i] = static_cast<uint8_t>(a.v[i] ^ swapped << n);
      b.v[i] = static_cast<uint8_t>(b.v[i] ^ swapped);
    }
  }
  MOE_INLINE B values16(const uint8_t* table, B a) {
    for (int i = 0; i < 64; ++i) a.v[i] = table[a.v[i]];
    return a;
  }
  MOE_INLINE void unpack3(B a, B out[5]) {
    for (int i = 0; i < 64; ++i) {
      int rest = a.v[i];
      for (int f = 0; f < 5; ++f) {
        out[f].v[i] = static_cast<uint8_t>(rest % 3);
        rest /= 3;
      }
    }
  }
  MOE_INLINE S zero_sum() { return zero_i(); }
  MOE_INLINE S dot_small(S s, B w, X4 x) {
    MOE_LANES for (int j = 0; j < 4; ++j) s.v[i] += w.v[4 * i + j] * x.v[j];
    return s;
  }
  MOE_INLINE I widen(S s) { return s; }
  MOE_INLINE I dot_int8(I s, B w, X4 x) {
    MOE_LANES for (int j = 0; j < 4; ++j) s.v[i] += static_cast<int8_t>(w.v[4 * i + j]) * x.v[j];
    return s;
  }
};

#undef MOE_MAP
#undef MOE_LANES

#include "kernels/cpu/generic/kernels.inc"

}  // namespace

extern const CpuKernels kernels_scalar = make_table("scalar");

}  // namespace moe
