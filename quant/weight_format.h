#pragma once
// One row of the list of weight formats. A format is its file quant/<name>.h and a line in list.h.

#include "quant/format.h"

namespace moe {

struct WeightFormat {
  FormatId id;
  const char* name;  // as files and command lines say it
  bool integer;      // codes times scales, summed as integers; otherwise plain values

  /// Bytes of one tile (16 rows) of `cols` inputs.
  size_t (*tile_bytes)(int64_t cols);
  /// The definition of the layout: code (integer formats) or value of one element; row is 0..15.
  float (*element)(const uint8_t* tile, int32_t cols, int row, int32_t col);
  /// element() for a whole row: out (cols).
  void (*read_row)(const uint8_t* tile, int32_t cols, int row, float* out);
  /// Writes a whole tile, padding included, from n_rows (1..16) rows, row i at source + i * ld.
  /// Codes: -1..1 (ternary), -127..127 (int8). One of the two is null.
  void (*pack_codes)(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
  void (*pack_values)(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
  /// Index of the first 64-byte block that holds something no packer writes, or -1. Null: all is
  /// allowed. `bytes` is a multiple of 32.
  int64_t (*find_invalid)(const uint8_t* tile, size_t bytes);
  const char* invalid;  // what that is
};

}  // namespace moe
