// SPDX-License-Identifier: MIT
// Tries both formats on sample rows and compares their squared errors.
#include "src/convert/weights/eight_bits.h"

#include <algorithm>
#include <cstring>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "quant/quantise.h"
#include "quant/weight_group.h"
#include "src/convert/weights/row_reader.h"
#include "src/convert/weights/storage.h"

namespace moe {
namespace {

constexpr int32_t kMostTiles = 16;

double squared_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - double{b[i]};
    sum += d * d;
  }
  return sum;
}

// A matrix in both formats, a tile at a time.
class Contest {
 public:
  explicit Contest(int32_t cols)
      : cols_(cols), tile_(kGroup.tile_bytes(cols)), codes_(static_cast<size_t>(cols)) {}

  void add(const std::vector<float>& rows) {
    n_rows_ = static_cast<int>(rows.size() / codes_.size());
    stored_.resize(rows.size());
    by_row_ += as_rows(rows);
    if (by_group_fits_) by_group_ += as_groups(rows);
  }
  FormatId winner() const {
    return by_group_fits_ && by_group_ < by_row_ ? FormatId::kInt8Group : FormatId::kInt8;
  }

 private:
  static constexpr const WeightFormat& kGroup =
      kWeightFormats[static_cast<size_t>(FormatId::kInt8Group)];

  double as_rows(const std::vector<float>& rows) {
    for (int r = 0; r < n_rows_; ++r) {
      const ptrdiff_t at = ptrdiff_t{r} * cols_;
      float scale = 1;
      check(int8_row(rows.data() + at, cols_, codes_.data(), &scale));
      for (int32_t c = 0; c < cols_; ++c) {
        stored_[static_cast<size_t>(at + c)] =
            static_cast<float>(codes_[static_cast<size_t>(c)]) * scale;
      }
    }
    return squared_difference(rows, stored_);
  }
  // If a scale does not fit in f16, int8 wins.
  double as_groups(const std::vector<float>& rows) {
    by_group_fits_ =
        kGroup.quantise_tile(rows.data(), cols_, n_rows_, cols_, nullptr, tile_.data()).ok();
    for (int r = 0; by_group_fits_ && r < n_rows_; ++r) {
      read_weights(kGroup, tile_.data(), cols_, r, stored_.data() + ptrdiff_t{r} * cols_);
    }
    return squared_difference(rows, stored_);
  }

  const int32_t cols_;
  int n_rows_ = 0;
  double by_row_ = 0;
  double by_group_ = 0;
  bool by_group_fits_ = true;
  std::vector<uint8_t> tile_;
  std::vector<int8_t> codes_;  // of a row
  std::vector<float> stored_;  // (n_rows, cols)
};

// True if an f16 can hold the scale of every group. NaN and infinity have none.
bool group_scales_fit(const PlannedMatrix& m, RowReader* reader,
                      const std::function<void()>& tick) {
  constexpr float kMost = 127 * kLargestHalf;
  for (int32_t r = 0; r < m.slot.rows; ++r) {
    if (r % kTileRows == 0) tick();
    if (!are_within(reader->row(r), m.slot.cols, kMost)) return false;
  }
  return true;
}

// The format with the smaller squared error; int8 if the errors are equal. A matrix with more than
// 256 rows is judged by 256 of them, in evenly spaced tiles.
FormatId closer(const PlannedMatrix& m, RowReader* reader, const std::function<void()>& tick) {
  const int32_t cols = m.slot.cols;
  const int32_t n_tiles = (m.slot.rows + kTileRows - 1) / kTileRows;
  const int32_t n = std::min(n_tiles, kMostTiles);
  Contest contest(cols);
  std::vector<float> rows;
  for (int32_t i = 0; i < n; ++i) {
    tick();
    const auto first = static_cast<int32_t>(int64_t{n_tiles} * i / n) * kTileRows;
    rows.clear();
    for (int32_t r = first; r < std::min(first + kTileRows, m.slot.rows); ++r) {
      const float* row = reader->row(r);
      check_finite(m, r, row);
      rows.insert(rows.end(), row, row + cols);
    }
    contest.add(rows);
  }
  return contest.winner();
}

// The tensor has codes of five to eight bits: int8_group may then be much more precise.
bool has_int8_codes(const PlannedMatrix& m, const Checkpoint& checkpoint) {
  const PackedRows* rows = checkpoint.packed(*m.tensor);
  if (rows == nullptr) return has_int8_blocks(m.tensor->type);
  switch (rows->codes(checkpoint)) {
    case PackedCodes::kGroups8:
    case PackedCodes::kRows8:
    case PackedCodes::kOther8:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool has_int8_blocks(SourceType type) {
  switch (type) {
    case SourceType::kQ8_0:
    case SourceType::kQ5_0:
    case SourceType::kQ5_1:
    case SourceType::kQ5K:
    case SourceType::kQ6K:
      return true;
    default:
      return false;
  }
}

FormatId eight_bits(const PlannedMatrix& m, const Checkpoint& checkpoint,
                    const std::function<void()>& tick) {
  const PrecisionChoice& choice = m.precision;
  const bool contested = choice.for_floats() == FormatId::kInt8Group ||
                         (!choice.int8_by_row && has_int8_codes(m, checkpoint));
  if (!contested) return FormatId::kInt8;
  RowReader reader(checkpoint, *m.tensor, m.source, m.slot.rows, m.slot.cols);
  if (closer(m, &reader, tick) == FormatId::kInt8) return FormatId::kInt8;
  const bool fits = m.tensor->type == SourceType::kF16 || group_scales_fit(m, &reader, tick);
  return fits ? FormatId::kInt8Group : FormatId::kInt8;
}

}  // namespace moe
