// SPDX-License-Identifier: MIT
// For four tokens uses the instructions that multiply 2 x 8 by 8 x 2 bytes: twice the products per
// instruction. Everything else as in neon_dotprod.
#include "kernels/cpu/isa/neon_i8mm.h"

#include "kernels/cpu/isa/neon.h"

namespace moe {

namespace {

struct Isa : Neon {
  static constexpr bool kMatrix = true;

  /// Two registers of rows (4q, 4q + 1) and (4q + 2, 4q + 3): four inputs of one block, then four
  /// of another.
  struct BlockPair {
    B low, high;
  };
  /// Four tokens, two per register, with the same inputs.
  struct TokenPairs {
    int8x16_t v[2];
  };
  /// v[h][j]: rows 2j and 2j + 1, tokens 2h and 2h + 1.
  struct MatrixSum {
    int32x4_t v[2][8];
  };

  MOE_INLINE B zero_block() {
    const uint8x16_t zero = vdupq_n_u8(0);
    return {{zero, zero, zero, zero}};
  }
  MOE_INLINE BlockPair pair_blocks(B a, B b) {
    BlockPair r;
    for (int q = 0; q < 4; ++q) {
      const uint32x4_t x = vreinterpretq_u32_u8(a.v[q]);
      const uint32x4_t y = vreinterpretq_u32_u8(b.v[q]);
      r.low.v[q] = vreinterpretq_u8_u32(vzip1q_u32(x, y));
      r.high.v[q] = vreinterpretq_u8_u32(vzip2q_u32(x, y));
    }
    return r;
  }
  MOE_INLINE TokenPairs pair_tokens(const int8_t* a, const int8_t* b) {
    const int32x4_t x = vreinterpretq_s32_s8(vld1q_s8(a));
    const int32x4_t y = vreinterpretq_s32_s8(vld1q_s8(b));
    return {{vreinterpretq_s8_s32(vzip1q_s32(x, y)), vreinterpretq_s8_s32(vzip2q_s32(x, y))}};
  }
  MOE_INLINE MatrixSum zero_matrix() {
    MatrixSum s;
    MOE_UNROLL
    for (int j = 0; j < 8; ++j) s.v[0][j] = s.v[1][j] = vdupq_n_s32(0);
    return s;
  }
  MOE_INLINE void dot_matrix(MatrixSum& s, const BlockPair& w, const TokenPairs& x) {
    MOE_UNROLL
    for (int q = 0; q < 4; ++q) {
      const int8x16_t low = vreinterpretq_s8_u8(w.low.v[q]);
      const int8x16_t high = vreinterpretq_s8_u8(w.high.v[q]);
      MOE_UNROLL
      for (int h = 0; h < 2; ++h) {
        s.v[h][2 * q] = vmmlaq_s32(s.v[h][2 * q], low, x.v[h]);
        s.v[h][2 * q + 1] = vmmlaq_s32(s.v[h][2 * q + 1], high, x.v[h]);
      }
    }
  }
  MOE_INLINE I sums_of_token(const MatrixSum& s, int token) {
    const int32x4_t* v = s.v[token / 2];
    I r;
    MOE_UNROLL
    for (int q = 0; q < 4; ++q) {
      r.v[q] =
          token % 2 == 0 ? vuzp1q_s32(v[2 * q], v[2 * q + 1]) : vuzp2q_s32(v[2 * q], v[2 * q + 1]);
    }
    return r;
  }
};

#include "kernels/cpu/generic/kernels.inc"

}  // namespace

void linear_neon_i8mm(const LinearArgs& a) {
  a.input->act == ActPrecision::kF32 ? kernels_neon_dotprod.linear(a) : linear_of_codes(a);
}

}  // namespace moe
