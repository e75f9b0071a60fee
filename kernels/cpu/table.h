#pragma once
// What one instruction set offers: a table of functions. kernels/cpu/isa/<isa>.cpp fills one each
// from the same text (kernels/cpu/generic), so results are bit-identical. Plain C headers only.

#include <stddef.h>
#include <stdint.h>

#include "kernels/kinds.h"
#include "quant/activation.h"
#include "quant/format.h"
#include "quant/half.h"
#include "src/base/inline.h"

#if defined(__clang__)
#define MOE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MOE_UNROLL _Pragma("GCC unroll 64")
#endif

namespace moe {

/// Rows of one input, quantised for one activation precision; see linear_input_bytes().
/// Rows are stored in groups of `max_tokens` (the rest in groups of 4, 2 and 1), the codes of a
/// group four by four: (k / 4, token, 4), zero from n_cols to padded_cols.
struct LinearInput {
  ActPrecision act = ActPrecision::kF32;
  int32_t n_rows = 0;
  int32_t n_cols = 0;
  // kF32: the rows themselves.
  const float* x = nullptr;  // row i at x + (row_ids ? row_ids[i] : i) * ld_x
  int64_t ld_x = 0;
  const int32_t* row_ids = nullptr;
  // kA8, kA8Block.
  int32_t padded_cols = 0;     // n_cols rounded up to 256
  int8_t* codes = nullptr;     // 64-byte aligned
  float* scales = nullptr;     // (n_rows, n_scales); NaN where a row holds NaN or infinity
  int32_t n_scales = 0;        // kA8: 1; kA8Block: padded_cols / 256
  int32_t* sums = nullptr;     // (n_rows, padded_cols / 64 + 1): sum of all codes before input 64 i
};

/// y (n_rows, ld_y): rows [16 tile_begin, 16 tile_end) of the matrix. As LinearOut says, in this
/// order: product, + bias, then y = scale * v, or y = fma(scale, v, y) when accumulating.
struct LinearArgs {
  const Matrix* weight = nullptr;
  const LinearInput* input = nullptr;  // prepared for weight->act
  const float* bias = nullptr;         // (rows) or null
  float* y = nullptr;
  int64_t ld_y = 0;
  bool accumulate = false;
  float scale = 1;
  int64_t tile_begin = 0;
  int64_t tile_end = 0;
};

struct CpuKernels {
  const char* name;
  int32_t max_tokens;  // rows of the largest group of LinearInput

  /// Quantises rows [begin, end) of input->x into codes, scales and sums. Rows are independent.
  void (*quantise_rows)(const LinearInput& input, int32_t begin, int32_t end);
  /// One range of tiles; ranges are independent. A row's result depends on that row alone.
  void (*linear)(const LinearArgs& args);
  /// Reads `bytes` (a multiple of 64) as linear() does; for measuring memory.
  uint32_t (*read_bytes)(const uint8_t* data, size_t bytes);
};

}  // namespace moe
