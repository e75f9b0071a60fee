#pragma once
// The uint8 layout of ternary weights in Hugging Face checkpoints (BitNet b1.58 2B4T, Falcon3):
// four output rows per byte. With R = rows / 4, byte (r, c) holds, lowest bits first, the codes + 1
// of rows r, r + R, r + 2R and r + 3R of column c.

#include <cstdint>

#include "src/base/status.h"

namespace moe {

/// codes (rows, cols) -> packed (rows / 4, cols). MOE_ERR_SHAPE: rows is not a multiple of 4;
/// MOE_ERR_RANGE: a code outside -1..1.
Status pack_ternary_hf(const int8_t* codes, int64_t rows, int64_t cols, uint8_t* packed);

/// packed (packed_rows, cols) -> codes (4 packed_rows, cols). MOE_ERR_RANGE: a field of 3.
Status unpack_ternary_hf(const uint8_t* packed, int64_t packed_rows, int64_t cols, int8_t* codes);

/// Unpacks row `row` (of 4 packed_rows) from packed_row (cols), which is row % packed_rows of the
/// tensor. codes (cols).
Status unpack_ternary_hf_row(const uint8_t* packed_row, int64_t packed_rows, int64_t row,
                             int64_t cols, int8_t* codes);

}  // namespace moe
