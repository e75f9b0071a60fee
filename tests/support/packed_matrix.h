// SPDX-License-Identifier: MIT
#pragma once
// A matrix packed from plain rows to tiles, with its memory.

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "quant/formats.h"

namespace moe {

class PackedMatrix {
 public:
  PackedMatrix() = default;

  /// values (rows, cols) in a float format, or one with scales in the tiles.
  PackedMatrix(FormatId format, const std::vector<float>& values, int32_t rows, int32_t cols) {
    start(format, rows, cols);
    const WeightFormat& info = format_info(format);
    if (info.group != 0) {
      matrix_.act = info.act;
      matrix_.scale_kind = ScaleKind::kGroup;
      matrix_.group = info.group;
    }
    for (int32_t r = 0; r < rows; r += kTileRows) {
      if (info.group != 0) {
        (void)info.quantise_tile(values.data() + static_cast<int64_t>(r) * cols, cols,
                                 std::min(kTileRows, rows - r), cols, nullptr, tile(r));
        continue;
      }
      info.pack_values(values.data() + static_cast<int64_t>(r) * cols, cols,
                       std::min(kTileRows, rows - r), cols, tile(r));
    }
  }

  /// codes (rows, cols) in an integer format. Scales: see Matrix::scales.
  PackedMatrix(FormatId format, const std::vector<int8_t>& codes, int32_t rows, int32_t cols,
               ActPrecision act, ScaleKind kind, std::vector<float> scales, int32_t group = 0)
      : scales_(std::make_shared<std::vector<float>>(std::move(scales))) {
    start(format, rows, cols);
    for (int32_t r = 0; r < rows; r += kTileRows) {
      format_info(format).pack_codes(codes.data() + static_cast<int64_t>(r) * cols, cols,
                                     std::min(kTileRows, rows - r), cols, tile(r));
    }
    matrix_.act = act;
    matrix_.scale_kind = kind;
    matrix_.group = group;
    scales_->resize(scale_count(format, kind, group, rows, cols), 1.0f);
    matrix_.scales = scales_->data();
  }

  const Matrix& get() const { return matrix_; }
  operator const Matrix&() const { return matrix_; }  // NOLINT: the point of the class

 private:
  void start(FormatId format, int32_t rows, int32_t cols) {
    const size_t stride = format_info(format).tile_bytes(cols);
    const size_t bytes = stride * static_cast<size_t>((rows + kTileRows - 1) / kTileRows);
    tiles_ = {static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), std::free};
    matrix_.format = format;
    matrix_.rows = rows;
    matrix_.cols = cols;
    matrix_.tile_stride = static_cast<int64_t>(stride);
    matrix_.tiles = tiles_.get();
  }
  uint8_t* tile(int32_t row) { return tiles_.get() + row / kTileRows * matrix_.tile_stride; }

  Matrix matrix_;
  std::shared_ptr<uint8_t> tiles_;
  std::shared_ptr<std::vector<float>> scales_;
};

/// Interleaves two matrices of one format and shape as a model file does for gate and up: a tile of
/// a, a tile of b .. Returns their memory.
inline std::shared_ptr<uint8_t> alternate(Matrix* a, Matrix* b) {
  const size_t size = format_info(a->format).tile_bytes(a->cols);
  const size_t n = static_cast<size_t>((a->rows + kTileRows - 1) / kTileRows);
  const size_t bytes = (2 * n * size + 63) / 64 * 64;
  std::shared_ptr<uint8_t> tiles{static_cast<uint8_t*>(std::aligned_alloc(64, bytes)), std::free};
  for (Matrix* m : {a, b}) {
    uint8_t* first = tiles.get() + (m == b ? size : 0);
    for (size_t t = 0; t < n; ++t) {
      const uint8_t* from = m->tiles + static_cast<int64_t>(t) * m->tile_stride;
      std::copy(from, from + size, first + 2 * t * size);
    }
    m->tiles = first;
    m->tile_stride = static_cast<int64_t>(2 * size);
  }
  return tiles;
}

}  // namespace moe
