// SPDX-License-Identifier: MIT
// AVX2 with AVX-VNNI, which adds four products to 32 bits exactly. Only products of codes differ
// from AVX2.
#include "kernels/cpu/isa/avxvnni.h"

#include "kernels/cpu/isa/avx2.h"

namespace moe {

namespace {

struct Isa : Avx2 {
  using S = I;
  static constexpr int kTernaryStreams = 4;
  static constexpr int kLightDots = 0;  // not measured
  static constexpr int kInPlace = 4;
  static constexpr int kSmallBlocks = 0;
  static constexpr int kInt8Offset = 128;

  MOE_INLINE S zero_sum() { return zero_i(); }
  MOE_INLINE S dot_small(S s, B w, X4 x) {
    return {_mm256_dpbusd_avx_epi32(s.a, w.a, x), _mm256_dpbusd_avx_epi32(s.b, w.b, x)};
  }
  MOE_INLINE I widen(S s) { return s; }
  /// Uses w + 128: subtract kInt8Offset times the sum of x at the end.
  MOE_INLINE I dot_int8(I s, B w, X4 x) {
    return dot_small(s, bit_xor(w, set1_bytes(static_cast<char>(0x80))), x);
  }
};

#include "kernels/cpu/generic/kernels.inc"

}  // namespace

void linear_avxvnni(const LinearArgs& a) {
  a.input->act == ActPrecision::kF32 ? kernels_avx2.linear(a) : linear_of_codes(a);
}

}  // namespace moe
