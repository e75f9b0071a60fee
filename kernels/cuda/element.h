#pragma once
// Single elements of a matrix in any format (quant/README.md); for tables, not for products.

#include "kernels/cuda/platform.h"
#include "quant/format.h"
#include "quant/half.h"
#include "quant/ternary3.h"

namespace moe::cuda {

/// Code (integer formats) or value of element (row, col).
__device__ inline float element_of(const Matrix& m, int32_t row, int32_t col) {
  const uint8_t* tile = m.tiles + row / kTileRows * m.tile_stride;
  const int r = row % kTileRows;
  const int64_t plain = int64_t{col} * kTileRows + r;
  switch (m.format) {
    case FormatId::kTernary2: {
      const int byte = tile[int64_t{col / 16} * kBlockBytes + 4 * r + col % 4];
      return static_cast<float>((byte >> (2 * (col % 16 / 4)) & 3) - 1);
    }
    case FormatId::kTernary3: {
      const int within = col % kTernary3Segment;
      const int64_t block =
          int64_t{col / kTernary3Segment} * kTernary3Blocks + within / kTernary3Cols;
      int byte = tile[block * kBlockBytes + 4 * r + within % 4];
      for (int digit = within % kTernary3Cols / 4; digit > 0; --digit) byte /= 3;
      return static_cast<float>(byte % 3 - 1);
    }
    case FormatId::kInt8:
      return static_cast<float>(
          static_cast<int8_t>(tile[int64_t{col / 4} * kBlockBytes + 4 * r + col % 4]));
    case FormatId::kBf16:
      return bf16_to_f32(reinterpret_cast<const uint16_t*>(tile)[plain]);
    case FormatId::kF16:
      return half_value(reinterpret_cast<const uint16_t*>(tile)[plain]);
    case FormatId::kI32:
      return static_cast<float>(reinterpret_cast<const int32_t*>(tile)[plain]);
    case FormatId::kF32:
      break;
  }
  return reinterpret_cast<const float*>(tile)[plain];
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
