#include "quant/hf_ternary.h"

namespace moe {

Status pack_ternary_hf(const int8_t* codes, int64_t rows, int64_t cols, uint8_t* packed) {
  if (rows % 4 != 0) {
    return Status::error(MOE_ERR_SHAPE, "packed ternary: expected rows in fours, found %lld",
                         static_cast<long long>(rows));
  }
  const int64_t n = rows / 4 * cols;  // distance between the four codes of a byte
  for (int64_t i = 0; i < 4 * n; ++i) {
    if (codes[i] < -1 || codes[i] > 1) {
      return Status::error(MOE_ERR_RANGE, "packed ternary: expected codes -1..1, found %d",
                           codes[i]);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    int byte = 0;
    for (int64_t f = 0; f < 4; ++f) byte |= (codes[i + f * n] + 1) << (2 * f);
    packed[i] = static_cast<uint8_t>(byte);
  }
  return {};
}

Status unpack_ternary_hf(const uint8_t* packed, int64_t packed_rows, int64_t cols, int8_t* codes) {
  for (int64_t row = 0; row < 4 * packed_rows; ++row) {
    MOE_TRY(unpack_ternary_hf_row(packed + row % packed_rows * cols, packed_rows, row, cols,
                                  codes + row * cols));
  }
  return {};
}

Status unpack_ternary_hf_row(const uint8_t* packed_row, int64_t packed_rows, int64_t row,
                             int64_t cols, int8_t* codes) {
  const int shift = static_cast<int>(2 * (row / packed_rows));
  for (int64_t i = 0; i < cols; ++i) {
    const int field = (packed_row[i] >> shift) & 3;
    if (field == 3) {
      return Status::error(MOE_ERR_RANGE, "packed ternary, row %lld, column %lld: found the code 3",
                           static_cast<long long>(row), static_cast<long long>(i));
    }
    codes[i] = static_cast<int8_t>(field - 1);
  }
  return {};
}

}  // namespace moe
