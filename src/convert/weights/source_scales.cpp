// SPDX-License-Identifier: MIT
// Takes codes and scales from the checkpoint's blocks where a format has room for exactly these.
#include "src/convert/weights/source_scales.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "quant/formats.h"
#include "quant/half.h"
#include "src/convert/weights/row_reader.h"

namespace moe {
namespace {

// Inputs of a group of codes in every checkpoint but Q2_K, Q3_K and Q6_K, whose rows are whole
// blocks of 256.
constexpr int32_t kScaleGroup = 32;

// The heads of a matrix may stand in another order, or with other matrices between them.
bool groups_are_of_rows(const SourceGroups& groups, int64_t cols) {
  return groups.stride % cols == 0 &&
         std::all_of(groups.pieces.begin(), groups.pieces.end(),
                     [cols](const auto& piece) { return piece.at >= 0 && piece.at % cols == 0; });
}

// The rows of the tensor are longer than those of the matrix.
bool has_part_of_columns(const Source& s, int64_t cols) {
  return s.packing == Packing::kNone && !s.shape.empty() && s.shape.back() > cols;
}

bool has_rows_of_tensor(const PlannedMatrix& m) {
  const Source& s = m.source;
  const bool grouped = !s.row_groups.pieces.empty();
  return s.col_stride == 1 && s.col_groups.pieces.empty() && s.rows.of == 0 && s.cols.of == 0 &&
         s.factors.empty() && (!grouped || groups_are_of_rows(s.row_groups, m.slot.cols)) &&
         s.offset % m.slot.cols == 0 && !has_part_of_columns(s, m.slot.cols);
}

double off_by(float v) {
  return std::fabs(static_cast<double>(f16_to_f32(f32_to_f16(v))) - static_cast<double>(v));
}

double squared(double v) { return v * v; }

std::optional<FormatId> format_of(PackedCodes codes) {
  switch (codes) {
    case PackedCodes::kSigned:
      return FormatId::kInt4;
    case PackedCodes::kMinimum:
      return FormatId::kInt4Min;
    case PackedCodes::kNf4:
      return FormatId::kNf4;
    case PackedCodes::kFp4:
      return FormatId::kFp4;
    case PackedCodes::kGroups8:
      return FormatId::kInt8Group;
    case PackedCodes::kRows8:
      return FormatId::kInt8;
    case PackedCodes::kOther:
    case PackedCodes::kOther8:
    case PackedCodes::kTernary:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<FormatId> format_of(SourceType type) {
  switch (type) {
    case SourceType::kQ4_0:
      return FormatId::kInt4;
    case SourceType::kQ4_1:
      return FormatId::kInt4Min;
    case SourceType::kQ2K:
      return FormatId::kInt2K;
    case SourceType::kQ3K:
      return FormatId::kInt3K;
    case SourceType::kQ4K:
      return FormatId::kInt4K;
    case SourceType::kQ6K:
      return FormatId::kInt6K;
    case SourceType::kIq4Nl:
    case SourceType::kIq4Xs:
      return FormatId::kNl4;
    case SourceType::kBlockMxfp4:
      return FormatId::kFp4;
    case SourceType::kIq2Xxs:
      return FormatId::kIq2Xxs;
    case SourceType::kIq2Xs:
      return FormatId::kIq2Xs;
    case SourceType::kIq2S:
      return FormatId::kIq2S;
    case SourceType::kIq3Xxs:
      return FormatId::kIq3Xxs;
    case SourceType::kIq3S:
      return FormatId::kIq3S;
    case SourceType::kIq1S:
      return FormatId::kIq1S;
    case SourceType::kIq1M:
      return FormatId::kIq1M;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<FormatId> format_of_codes(const PlannedMatrix& m, const Checkpoint& checkpoint) {
  const bool in_groups = m.slot.cols % kScaleGroup == 0;
  if (!has_rows_of_tensor(m)) return std::nullopt;
  if (m.source.packing == Packing::kMxfp4 && in_groups) return FormatId::kFp4;
  if (m.source.packing != Packing::kNone) return std::nullopt;
  // Rows of the matrix are rows of the tensor.
  if (m.tensor->shape.empty() || m.tensor->shape.back() != m.slot.cols) return std::nullopt;
  const PackedRows* rows = checkpoint.packed(*m.tensor);
  std::optional<FormatId> format =
      rows != nullptr ? format_of(rows->codes(checkpoint)) : format_of(m.tensor->type);
  // int4_min has the same codes, with rounded scales.
  if (format == FormatId::kInt4K && m.precision.weights == FormatId::kInt4Min) {
    format = m.precision.weights;
  }
  return in_groups || format == FormatId::kInt8 ? format : std::nullopt;
}

int64_t row_of_tensor(const PlannedMatrix& m, int32_t r) {
  const Source& s = m.source;
  const int64_t stride = s.row_stride == 0 ? m.slot.cols : s.row_stride;
  const int64_t place =
      s.row_groups.pieces.empty() ? r * stride : place_in_groups(s.row_groups, r, stride);
  return (s.offset + place) / m.slot.cols;
}

bool has_eight_bits(FormatId format) {
  return format == FormatId::kInt8 || format == FormatId::kInt8Group;
}

SourceScales::SourceScales(const PlannedMatrix& matrix, FormatId format,
                           const Checkpoint& checkpoint)
    : matrix_(matrix),
      checkpoint_(checkpoint),
      format_(format),
      group_(format == FormatId::kInt8 ? matrix.slot.cols : format_info(format).group) {
  if (has_eight_bits(format)) {
    for (int i = 0; i < 256; ++i) nearest_[i] = static_cast<int8_t>(std::max(i - 128, -127));
    return;
  }
  int8_t values[64];  // of all codes
  for (uint8_t code = 0; code < 64; ++code) values[code] = format_info(format).random_code(code);
  for (int i = 0; i < 256; ++i) {
    const auto distance = [&](int8_t v) { return std::abs(i - 128 - v); };
    nearest_[i] = *std::min_element(std::begin(values), std::end(values),
                                    [&](int8_t a, int8_t b) { return distance(a) < distance(b); });
  }
  for (int i = 0; i < 256; ++i) {
    whole_ &= nearest_[i] == std::clamp<int>(i - 128, nearest_[0], nearest_[255]);
  }
}

// Compares a group's largest possible weight with the largest possible error.
bool SourceScales::fit(const std::function<void()>& tick) {
  constexpr int32_t kRows = 256;
  const SourceTypeInfo& info = source_type_info(matrix_.tensor->type);
  // Their scales are single f16.
  const bool halves = info.read_scales != nullptr && info.block == kScaleGroup;
  // The format stores these scales unchanged.
  switch (format_) {
    case FormatId::kFp4:
    case FormatId::kInt8:
    case FormatId::kInt2K:
    case FormatId::kInt3K:
    case FormatId::kInt4K:
    case FormatId::kInt6K:
      return true;
    default:
      if (halves) return true;
  }
  const double most = format_info(format_).max_code;
  double error = 0, norm = 0;
  for (int32_t first = 0; first < matrix_.slot.rows; first += kRows) {
    tick();
    read(first, std::min(kRows, matrix_.slot.rows - first));
    for (size_t i = 0; i < scales_.size(); ++i) {
      error += squared(most * off_by(scales_[i]) + off_by(minimums_[i]));
      norm += squared(most * std::fabs(static_cast<double>(scales_[i])) +
                      std::fabs(static_cast<double>(minimums_[i])));
    }
  }
  return error <= norm * squared(1.0 / 1024);  // false for NaN and infinite
}

void SourceScales::split(int32_t first, int n, const float* values, int8_t* codes) {
  read(first, n);
  const int32_t cols = matrix_.slot.cols;
  const int64_t n_values = int64_t{n} * cols;
  for (int64_t begin = 0; begin < n_values; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, n_values);
    const auto for_groups = [&](const auto& use) {
      for (int64_t at = begin; at < end;) {
        const int64_t next = std::min(end, (at / group_ + 1) * group_);
        use(static_cast<size_t>(at / group_), at, next - at);
        at = next;
      }
    };
    float quotients[kChunk] = {};
    for_groups([&](size_t group, int64_t at, int64_t length) {
      divide(values + at, length, scales_[group], minimums_[group], quotients + (at - begin));
    });
    int8_t chunk[kChunk];
    nearest(quotients, chunk);
    for_groups([&](size_t group, int64_t at, int64_t length) {
      if (minimums_[group] == 0.0f) return;
      correct(values + at, length, scales_[group], minimums_[group], chunk + (at - begin));
    });
    std::copy(chunk, chunk + (end - begin), codes + begin);
  }
}

void SourceScales::divide(const float* values, int64_t n, float scale, float minimum, float* out) {
  if (scale == 0.0f) return;
  for (int64_t i = 0; i < n; ++i) out[i] = (values[i] - minimum) / scale;
}

void SourceScales::nearest(const float (&quotients)[kChunk], int8_t (&codes)[kChunk]) const {
  int32_t place[kChunk];
  for (int i = 0; i < kChunk; ++i) {
    float v = quotients[i];
    v = v < -128.0f ? -128.0f : v;
    v = v > 127.0f ? 127.0f : v;
    place[i] = static_cast<int32_t>(v + 128.5f);
  }
  if (!whole_) {
    for (int i = 0; i < kChunk; ++i) codes[i] = nearest_[place[i]];
    return;
  }
  const int32_t least = nearest_[0], most = nearest_[255];
  for (int i = 0; i < kChunk; ++i) {
    int32_t code = place[i] - 128;
    code = code < least ? least : code;
    codes[i] = static_cast<int8_t>(code > most ? most : code);
  }
}

// Corrects codes whose values are not quite those of the checkpoint. Nearly all are right, which is
// checked in vectors.
void SourceScales::correct(const float* values, int64_t n, float scale, float minimum,
                           int8_t* codes) const {
  int wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    wrong |= static_cast<float>(codes[i]) * scale + minimum != values[i] ? 1 : 0;
  }
  for (int64_t i = 0; wrong != 0 && i < n; ++i) {
    codes[i] = code_of(values[i], scale, minimum, codes[i]);
  }
}

// A minimum far larger than the scale leaves few bits of a value: the code then is the one whose
// value rounds to the same. `near` without one.
int8_t SourceScales::code_of(float value, float scale, float minimum, int8_t near) const {
  const auto is_of = [&](int code) { return static_cast<float>(code) * scale + minimum == value; };
  const int most = format_info(format_).max_code;
  for (int code = is_of(near) ? most + 1 : 0; code <= most; ++code) {
    if (is_of(code)) return static_cast<int8_t>(code);
  }
  return near;
}

void SourceScales::read(int32_t first, int n) {
  const auto per_row = static_cast<size_t>(matrix_.slot.cols / group_);
  scales_.resize(static_cast<size_t>(n) * per_row);
  minimums_.resize(scales_.size());
  const Source& s = matrix_.source;
  const int64_t stride = s.row_stride == 0 ? matrix_.slot.cols : s.row_stride;
  const bool grouped = !s.row_groups.pieces.empty();
  if (const PackedRows* rows = checkpoint_.packed(*matrix_.tensor);
      rows != nullptr && stride == matrix_.slot.cols && !grouped) {
    rows->read_scales(checkpoint_, s.offset / stride + first, n, scales_.data(), minimums_.data());
  } else {
    for (int i = 0; i < n; ++i) {
      const size_t at = static_cast<size_t>(i) * per_row;
      read_row(row_of_tensor(matrix_, first + i), &scales_[at], &minimums_[at]);
    }
  }
  if (!format_info(format_).minimums) std::fill(minimums_.begin(), minimums_.end(), 0.0f);
  if (format_ == FormatId::kInt8) make_positive();
}

// A file's row scales are positive: a negative one changes the sign of its codes, and 0, the scale
// of a row of zeros, becomes 1.
void SourceScales::make_positive() {
  for (float& scale : scales_) scale = scale == 0.0f ? 1.0f : std::fabs(scale);
}

void SourceScales::read_row(int64_t row, float* scales, float* minimums) {
  const int64_t n_groups = matrix_.slot.cols / group_;
  const SourceTensor& tensor = *matrix_.tensor;
  if (const PackedRows* rows = checkpoint_.packed(tensor)) {
    return rows->read_scales(checkpoint_, row, 1, scales, minimums);
  }
  if (matrix_.source.packing == Packing::kMxfp4) {
    bytes_.resize(static_cast<size_t>(n_groups));
    checkpoint_.read_bytes(*checkpoint_.find(matrix_.source.scales),
                           static_cast<uint64_t>(row * n_groups), bytes_.size(), bytes_.data());
    for (int64_t g = 0; g < n_groups; ++g) {
      scales[g] = std::ldexp(1.0f, bytes_[static_cast<size_t>(g)] - 128);
    }
    return;
  }
  const SourceTypeInfo& info = source_type_info(tensor.type);
  const auto n_blocks = static_cast<size_t>(matrix_.slot.cols) / info.block;
  bytes_.resize(n_blocks * info.bytes);
  checkpoint_.read_bytes(tensor, static_cast<uint64_t>(row) * bytes_.size(), bytes_.size(),
                         bytes_.data());
  for (size_t b = 0; b < n_blocks; ++b) {
    const size_t at = b * (info.block / static_cast<size_t>(group_));
    info.read_scales(bytes_.data() + b * info.bytes, scales + at, minimums + at);
  }
}

}  // namespace moe
