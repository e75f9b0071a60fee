// SPDX-License-Identifier: MIT
// Looks formats up by name, computes sizes, reads single weights and whole rows, and checks
// matrices from files.
#include "quant/formats.h"

#include "src/base/checked.h"

namespace moe {
namespace {

constexpr int32_t kMaxCodeCols = 65536;  // more could overflow a 32-bit sum of code products
constexpr int64_t kMaxDimension = int64_t{1} << 31;

// Names of the formats that weights can be rounded to, joined.
struct WeightNames {
  char text[256] = {};
  constexpr WeightNames() {
    size_t used = 0;
    for (const WeightFormat& format : kWeightFormats) {
      if (!format.can_round()) continue;
      for (const char* c = used == 0 ? "" : ", "; *c != 0; ++c) text[used++] = *c;
      for (const char* c = format.name; *c != 0; ++c) text[used++] = *c;
    }
  }
};
constexpr WeightNames kWeightNames;

const char* const kScaleNames[] = {"no", "tensor", "row", "group"};

Status check_scales_kind(const Matrix& m) {
  const WeightFormat& format = format_info(m.format);
  if (!format.can_have(m.scale_kind)) {
    return Status::error(MOE_ERR_UNSUPPORTED, "weight format %s cannot have %s scales", format.name,
                         kScaleNames[static_cast<int>(m.scale_kind)]);
  }
  if (format.group != 0 && m.group != format.group) {
    return Status::error(MOE_ERR_RANGE, "scale group of %s: expected %d, found %d", format.name,
                         format.group, m.group);
  }
  if (format.group != 0) return {};
  if (m.scale_kind == ScaleKind::kGroup && m.group != 64 && m.group != 128 && m.group != 256) {
    return Status::error(MOE_ERR_RANGE, "scale group: expected 64, 128 or 256, found %d", m.group);
  }
  return {};
}

}  // namespace

const WeightFormat* find_format(std::string_view name) {
  for (const WeightFormat& format : kWeightFormats) {
    if (name == format.name) return &format;
  }
  return nullptr;
}

const WeightFormat* find_weight_format(std::string_view name) {
  const WeightFormat* format = find_format(name);
  return format == nullptr || format->table ? nullptr : format;
}

const char* weight_format_names() { return kWeightNames.text; }

const char* weight_format_name(size_t index) {
  for (const WeightFormat& format : kWeightFormats) {
    if (format.can_round() && index-- == 0) return format.name;
  }
  return nullptr;
}

size_t scale_count(FormatId format, ScaleKind kind, int32_t group, int64_t rows, int64_t cols) {
  if (format_info(format).group != 0) return 0;
  const size_t padded_rows = static_cast<size_t>(round_up(rows, int64_t{kTileRows}));
  switch (kind) {
    case ScaleKind::kNone:
      return 0;
    case ScaleKind::kTensor:
      return 1;
    case ScaleKind::kRow:
      return padded_rows;
    case ScaleKind::kGroup:
      return padded_rows * static_cast<size_t>((cols + group - 1) / group);
  }
  return 0;
}

int64_t scale_index(ScaleKind kind, int32_t group, int32_t cols, int32_t row, int32_t col) {
  if (kind == ScaleKind::kRow) return row;
  if (kind != ScaleKind::kGroup) return 0;
  const int64_t n_groups = (int64_t{cols} + group - 1) / group;
  return (row / kTileRows * n_groups + col / group) * kTileRows + row % kTileRows;
}

Result<size_t> matrix_bytes(FormatId format, int64_t rows, int64_t cols) {
  if (rows < 1 || cols < 1 || rows >= kMaxDimension || cols >= kMaxDimension) {
    return Status::error(MOE_ERR_SHAPE, "expected a shape from (1, 1) on, found (%lld, %lld)",
                         static_cast<long long>(rows), static_cast<long long>(cols));
  }
  size_t bytes = 0;
  const size_t n_tiles = static_cast<size_t>((rows + kTileRows - 1) / kTileRows);
  if (!checked_mul(n_tiles, format_info(format).tile_bytes(cols), &bytes)) {
    return Status::error(MOE_ERR_SHAPE, "(%lld, %lld) is too large", static_cast<long long>(rows),
                         static_cast<long long>(cols));
  }
  return bytes;
}

float weight(const Matrix& m, int32_t row, int32_t col) {
  const uint8_t* tile = m.tiles + row / kTileRows * m.tile_stride;
  const WeightFormat& format = format_info(m.format);
  const float element = format.element(tile, m.cols, row % kTileRows, col);
  if (m.scale_kind == ScaleKind::kNone) return element;
  if (format.group != 0) {
    const int32_t group = col / format.group;
    return element * format.scale(tile, row % kTileRows, group) +
           format.minimum(tile, row % kTileRows, group);
  }
  return element * m.scales[scale_index(m.scale_kind, m.group, m.cols, row, col)];
}

// Sixteen sums, each over every sixteenth column, added in pairs.
float row_length(const Matrix& m, int32_t row) {
  constexpr int kLanes = 16;
  float sum[kLanes] = {};
  for (int32_t c = 0; c < m.cols; ++c) {
    const float v = weight(m, row, c);
    sum[c % kLanes] = __builtin_fmaf(v, v, sum[c % kLanes]);
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) sum[i] += sum[i + width];
  }
  return __builtin_sqrtf(sum[0]);
}

void read_tile(const Matrix& m, int64_t tile, int32_t begin, int32_t n, float* out) {
  const uint8_t* at = m.tiles + tile * m.tile_stride;
  const WeightFormat& format = format_info(m.format);
  if (format.read_tile != nullptr) return format.read_tile(at, begin, n, out);
  const auto element = format.element;
  for (int32_t col = begin; col < begin + n; ++col) {
    for (int row = 0; row < kTileRows; ++row) *out++ = element(at, m.cols, row, col);
  }
}

bool has_minimums(FormatId format) { return format_info(format).minimums; }

void read_tile_scales(const Matrix& m, int64_t tile, int32_t group, float* scales,
                      float* minimums) {
  const WeightFormat& format = format_info(m.format);
  const uint8_t* at = m.tiles + tile * m.tile_stride;
  for (int row = 0; row < kTileRows; ++row) {
    scales[row] = format.scale(at, row, group);
    minimums[row] = format.minimum(at, row, group);
  }
}

void read_weights(const WeightFormat& format, const uint8_t* tile, int32_t cols, int row,
                  float* out) {
  read_row(format, tile, cols, row, out);
  if (format.group == 0) return;
  for (int32_t begin = 0; begin < cols; begin += format.group) {
    const float scale = format.scale(tile, row, begin / format.group);
    const float minimum = format.minimum(tile, row, begin / format.group);
    const int32_t end = cols - begin < format.group ? cols : begin + format.group;
    constexpr int32_t kChunk = 16;  // a loop of this length is vectorised
    int32_t col = begin;
    for (; col + kChunk <= end; col += kChunk) {
      for (int32_t i = 0; i < kChunk; ++i) out[col + i] = out[col + i] * scale + minimum;
    }
    for (; col < end; ++col) out[col] = out[col] * scale + minimum;
  }
}

void read_row(const WeightFormat& format, const uint8_t* tile, int32_t cols, int row, float* out) {
  if (format.read_row != nullptr) return format.read_row(tile, cols, row, out);
  for (int32_t col = 0; col < cols; ++col) out[col] = format.element(tile, cols, row, col);
}

void read_row(const Matrix& m, int32_t row, float* out) {
  const uint8_t* tile = m.tiles + row / kTileRows * m.tile_stride;
  const WeightFormat& format = format_info(m.format);
  read_weights(format, tile, m.cols, row % kTileRows, out);
  if (m.scale_kind == ScaleKind::kNone || format.group != 0) return;
  for (int32_t col = 0; col < m.cols; ++col) {
    out[col] *= m.scales[scale_index(m.scale_kind, m.group, m.cols, row, col)];
  }
}

const char* activations_instead(const WeightFormat& format, ActPrecision act) {
  if (!format.integer) return act == ActPrecision::kF32 ? nullptr : "f32";
  const bool refused =
      act == ActPrecision::kA8Group && (format.group == 0 || kActGroup % format.group != 0);
  return refused ? "f32, a8 or a8_block" : nullptr;
}

Status check_matrix(const Matrix& m) {
  const WeightFormat& format = format_info(m.format);
  if (m.rows < 1 || m.cols < 1) {
    return Status::error(MOE_ERR_SHAPE, "expected a shape from (1, 1) on, found (%d, %d)", m.rows,
                         m.cols);
  }
  if (format.integer && m.cols > kMaxCodeCols) {
    return Status::error(MOE_ERR_RANGE, "%s: expected at most %d inputs, found %d", format.name,
                         kMaxCodeCols, m.cols);
  }
  MOE_TRY(check_scales_kind(m));
  if (const char* others = activations_instead(format, m.act); others != nullptr) {
    return Status::error(MOE_ERR_UNSUPPORTED, "weight format %s needs %s activations", format.name,
                         others);
  }
  if (m.tile_stride < 0 || static_cast<size_t>(m.tile_stride) < format.tile_bytes(m.cols)) {
    return Status::error(MOE_ERR_SHAPE, "expected at least %zu bytes from tile to tile, found %lld",
                         format.tile_bytes(m.cols), static_cast<long long>(m.tile_stride));
  }
  return {};
}

Status validate_scales(const float* scales, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (!(scales[i] > 0.0f && scales[i] <= 3.4028235e38f)) {
      return Status::error(MOE_ERR_RANGE, "scale %zu: expected a finite number above 0, found %g",
                           i, static_cast<double>(scales[i]));
    }
  }
  return {};
}

Status validate_codes(const Matrix& m) {
  const WeightFormat& format = format_info(m.format);
  if (format.find_invalid != nullptr) {
    const size_t bytes = format.tile_bytes(m.cols);
    const int32_t n_tiles = (m.rows + kTileRows - 1) / kTileRows;
    for (int32_t t = 0; t < n_tiles; ++t) {
      const int64_t block = format.find_invalid(m.tiles + t * m.tile_stride, bytes);
      if (block < 0) continue;
      const bool scale = format.group != 0 && block % format.segment_blocks == 0;
      return Status::error(format.integer && !scale ? MOE_ERR_RANGE : MOE_ERR_NON_FINITE,
                           "%s weights: found %s in rows %d..%d, block %lld of %zu", format.name,
                           scale ? "a scale that is NaN or infinite" : format.invalid,
                           t * kTileRows, t * kTileRows + kTileRows - 1,
                           static_cast<long long>(block), (bytes + 63) / 64);
    }
  }
  return validate_scales(m.scales, scale_count(m.format, m.scale_kind, m.group, m.rows, m.cols));
}

}  // namespace moe
