// SPDX-License-Identifier: MIT
#pragma once
// Table of the weight formats in list.h, and common operations: sizes, scales, definition,
// validation.

#include <string_view>

#include "quant/all.h"

namespace moe {
namespace quant_detail {

template <class Format>
constexpr WeightFormat row(FormatId id) {
  WeightFormat format = Format::info;
  format.id = id;
  format.element = Format::element;
  if constexpr (requires { Format::scale; }) {
    format.scale = Format::scale;
    format.minimum = Format::minimum;
  }
  return format;
}

}  // namespace quant_detail

/// In the order of FormatId.
inline constexpr WeightFormat kWeightFormats[] = {
#define MOE_WEIGHT_FORMAT(Name, header) quant_detail::row<Name##Format>(FormatId::k##Name),
#include "quant/list.h"
#undef MOE_WEIGHT_FORMAT
};

inline const WeightFormat& format_info(FormatId id) {
  return kWeightFormats[static_cast<size_t>(id)];
}
/// Null if no format has that name.
const WeightFormat* find_format(std::string_view name);
/// The same for weight formats, excluding tables.
const WeightFormat* find_weight_format(std::string_view name);
/// "ternary2, ternary3, int8 ..": those that weights can be quantised to.
const char* weight_format_names();
/// One of them; null behind the last.
const char* weight_format_name(size_t index);

/// Number of floats in Matrix::scales; 0 for kNone and for scales in the tiles.
size_t scale_count(FormatId format, ScaleKind kind, int32_t group, int64_t rows, int64_t cols);
/// Index of an element's scale. Row scales are in order; group scales are f32 tiles of a (rows,
/// n_groups) matrix: ((row / 16) * n_groups + group) * 16 + row % 16.
int64_t scale_index(ScaleKind kind, int32_t group, int32_t cols, int32_t row, int32_t col);

/// Bytes of all tiles of a single matrix, without scales. MOE_ERR_SHAPE on overflow.
Result<size_t> matrix_bytes(FormatId format, int64_t rows, int64_t cols);

/// The definition: the value of element (row, col).
float weight(const Matrix& m, int32_t row, int32_t col);
/// weight() for a whole row: out (cols).
void read_row(const Matrix& m, int32_t row, float* out);
/// The Euclidean length of a row, with the same bits as the CPU's kernels have for a token.
float row_length(const Matrix& m, int32_t row);

/// The same for a row of a tile whose format has no separate scales.
void read_weights(const WeightFormat& format, const uint8_t* tile, int32_t cols, int row,
                  float* out);
/// element() of a row: out (cols).
void read_row(const WeightFormat& format, const uint8_t* tile, int32_t cols, int row, float* out);

/// Null if inputs of matrices in this format may have this precision; otherwise the names of those
/// that they may have. a8_group is for formats with scales in the tile.
const char* activations_instead(const WeightFormat& format, ActPrecision act);

/// Checks the kernels' preconditions, shapes and kinds only: sizes at least 1, at most 65,536
/// inputs for integer codes (32-bit sums), scale kind and activations that the format supports.
/// MOE_ERR_SHAPE, MOE_ERR_RANGE or MOE_ERR_UNSUPPORTED.
Status check_matrix(const Matrix& m);

/// Checks all tiles and scales at memory speed: MOE_ERR_RANGE for a code that no packer writes or a
/// scale that is not finite and positive, MOE_ERR_NON_FINITE for a NaN or infinite value.
Status validate_codes(const Matrix& m);
/// Scales only.
Status validate_scales(const float* scales, size_t n);

}  // namespace moe
