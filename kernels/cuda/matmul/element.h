// SPDX-License-Identifier: MIT
#pragma once
// Single elements of a matrix in any format (quant/README.md); for tables, not for matrix products.

#include "kernels/cuda/platform.h"
#include "quant/all.h"

namespace moe::cuda {

/// Code (integer formats) or value of element (row, col), of the formats of which kHas is true. The
/// others would cost a kernel that never asks for them registers.
template <bool (*kHas)(FormatId)>
__device__ inline float element_if(const Matrix& m, int32_t row, int32_t col) {
  const uint8_t* tile = m.tiles + row / kTileRows * m.tile_stride;
  switch (m.format) {
#define MOE_WEIGHT_FORMAT(Name, header)                                 \
  case FormatId::k##Name:                                               \
    if constexpr (kHas(FormatId::k##Name)) {                            \
      return Name##Format::element(tile, m.cols, row % kTileRows, col); \
    }                                                                   \
    break;
#include "quant/list.h"
#undef MOE_WEIGHT_FORMAT
  }
  return 0;
}

MOE_INLINE constexpr bool every_format(FormatId) { return true; }

/// The same for every format.
__device__ inline float element_of(const Matrix& m, int32_t row, int32_t col) {
  return element_if<every_format>(m, row, col);
}

/// The scale of a group of inputs of a row, stored in the tile.
struct GroupScales {
  float scale;
  float minimum;
  bool minimums;  // the format has minimums
};

template <class Format>
inline constexpr bool kScalesInTile = requires {
  Format::scale;
};

/// Formats of matmul_groups.cuh, which has the operands of four, six and eight bits: not two and
/// three bits, nor the trellises, nor the codebooks.
template <class Format>
inline constexpr bool kHasGroupMma = kScalesInTile<Format> && !requires {
  Format::kThird;
}
&&!requires { Format::kLevels; }
&&!requires { Format::kCodebook; };

template <class Format>
__device__ inline GroupScales group_scales(const uint8_t* tile, int32_t row, int32_t group) {
  if constexpr (kScalesInTile<Format>) {
    return {Format::scale(tile, row, group), Format::minimum(tile, row, group), Format::kMinimums};
  } else {
    return {1, 0, false};
  }
}

__device__ inline GroupScales group_scales_of(const Matrix& m, int32_t row, int32_t group) {
  const uint8_t* tile = m.tiles + row / kTileRows * m.tile_stride;
  switch (m.format) {
#define MOE_WEIGHT_FORMAT(Name, header) \
  case FormatId::k##Name:               \
    return group_scales<Name##Format>(tile, row % kTileRows, group);
#include "quant/list.h"
#undef MOE_WEIGHT_FORMAT
  }
  return {1, 0, false};
}

MOE_INLINE bool has_group_mma(const Matrix& m) {
  switch (m.format) {
#define MOE_WEIGHT_FORMAT(Name, header) \
  case FormatId::k##Name:               \
    return kHasGroupMma<Name##Format>;
#include "quant/list.h"
#undef MOE_WEIGHT_FORMAT
  }
  return false;
}

MOE_INLINE bool has_group_scales(const Matrix& m) {
  switch (m.format) {
#define MOE_WEIGHT_FORMAT(Name, header) \
  case FormatId::k##Name:               \
    return kScalesInTile<Name##Format>;
#include "quant/list.h"
#undef MOE_WEIGHT_FORMAT
  }
  return false;
}

/// The scale of element (row, col); 1 if there is none.
__device__ inline float scale_of(const Matrix& m, int32_t row, int32_t col) {
  switch (m.scale_kind) {
    case ScaleKind::kNone:
      return 1;
    case ScaleKind::kTensor:
      return m.scales[0];
    case ScaleKind::kRow:
      return m.scales[row];
    case ScaleKind::kGroup:
      if (has_group_scales(m)) return group_scales_of(m, row, col / m.group).scale;
      break;
  }
  const int64_t n_groups = (int64_t{m.cols} + m.group - 1) / m.group;
  return m.scales[(row / kTileRows * n_groups + col / m.group) * kTileRows + row % kTileRows];
}

__device__ inline float weight_of(const Matrix& m, int32_t row, int32_t col) {
  if (has_group_scales(m)) {
    const GroupScales s = group_scales_of(m, row, col / m.group);
    return element_of(m, row, col) * s.scale + s.minimum;
  }
  return element_of(m, row, col) * scale_of(m, row, col);
}

}  // namespace moe::cuda
