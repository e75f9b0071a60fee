#pragma once
// Single elements of a matrix in any format (quant/README.md); for tables, not for products.

#include "kernels/cuda/platform.h"
#include "quant/all.h"

namespace moe::cuda {

/// Code (integer formats) or value of element (row, col).
__device__ inline float element_of(const Matrix& m, int32_t row, int32_t col) {
  const uint8_t* tile = m.tiles + row / kTileRows * m.tile_stride;
  switch (m.format) {
#define MOE_WEIGHT_FORMAT(Name, header) \
  case FormatId::k##Name:               \
    return Name##Format::element(tile, m.cols, row % kTileRows, col);
#include "quant/list.h"
#undef MOE_WEIGHT_FORMAT
  }
  return 0;
}

/// The scale of element (row, col); 1 where there is none.
__device__ inline float scale_of(const Matrix& m, int32_t row, int32_t col) {
  switch (m.scale_kind) {
    case ScaleKind::kNone:
      return 1;
    case ScaleKind::kTensor:
      return m.scales[0];
    case ScaleKind::kRow:
      return m.scales[row];
    case ScaleKind::kGroup:
      break;
  }
  const int64_t n_groups = (int64_t{m.cols} + m.group - 1) / m.group;
  return m.scales[(row / kTileRows * n_groups + col / m.group) * kTileRows + row % kTileRows];
}

__device__ inline float weight_of(const Matrix& m, int32_t row, int32_t col) {
  return element_of(m, row, col) * scale_of(m, row, col);
}

}  // namespace moe::cuda
