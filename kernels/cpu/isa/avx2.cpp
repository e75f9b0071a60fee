// SPDX-License-Identifier: MIT
// Tables of AVX2, which adds pairs of products in 16 bits, and of AVX-VNNI, which differs only in
// products of codes.
#include "kernels/cpu/isa/avx2.h"

#include "kernels/cpu/isa/avxvnni.h"

namespace moe {
namespace {

struct Isa : Avx2 {
  using S = I;  // 16-bit sums of two products
  static constexpr int kTernaryStreams = 2;
  static constexpr int kInPlace = 2;
  static constexpr int kSmallBlocks = 16;
  static constexpr int kInt8Offset = 0;

  MOE_INLINE S zero_sum() { return zero_i(); }
  MOE_INLINE S dot_small(S s, B w, X4 x) {
    return {_mm256_add_epi16(s.a, _mm256_maddubs_epi16(w.a, x)),
            _mm256_add_epi16(s.b, _mm256_maddubs_epi16(w.b, x))};
  }
  MOE_INLINE I widen(S s) {
    const __m256i one = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(s.a, one), _mm256_madd_epi16(s.b, one)};
  }
  // |x| can be 128 as an unsigned byte, |w| is at most 127: pair sums fit in 16 bits but two pairs
  // do not, so they are widened immediately.
  MOE_INLINE I dot_int8(I s, B w, X4 x) {
    const __m256i one = _mm256_set1_epi16(1);
    const __m256i size = _mm256_abs_epi8(x);
    const __m256i a = _mm256_maddubs_epi16(size, _mm256_sign_epi8(w.a, x));
    const __m256i b = _mm256_maddubs_epi16(size, _mm256_sign_epi8(w.b, x));
    return add(s, {_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one)});
  }
};

#include "kernels/cpu/generic/kernels.inc"

[[maybe_unused]] constexpr CpuKernels with_avxvnni(CpuKernels t) {
  t.linear = linear_avxvnni;
  return t;
}

}  // namespace

extern const CpuKernels kernels_avx2 = make_table("avx2");
#if defined(MOE_ISA_AVXVNNI)
extern const CpuKernels kernels_avxvnni = with_avxvnni(make_table("avxvnni"));
#endif

}  // namespace moe
