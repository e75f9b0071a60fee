// SPDX-License-Identifier: MIT
// Tries both formats on sample rows and compares their squared errors.
#include "src/convert/weights/eight_bits.h"

#include <algorithm>
#include <vector>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "quant/quantise.h"
#include "quant/weight_group.h"
#include "src/convert/weights/in_order.h"
#include "src/convert/weights/largest.h"
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

constexpr const WeightFormat& kGroup = kWeightFormats[static_cast<size_t>(FormatId::kInt8Group)];

// Squared errors of some rows in both formats.
struct Contest {
  double by_row = 0;
  double by_group = 0;
  bool by_group_fits = true;
};

double error_as_rows(const std::vector<float>& rows, int32_t cols) {
  std::vector<int8_t> codes(static_cast<size_t>(cols));
  std::vector<float> stored(rows.size());
  for (size_t at = 0; at < rows.size(); at += codes.size()) {
    float scale = 1;
    check(int8_row(rows.data() + at, cols, codes.data(), &scale));
    for (size_t c = 0; c < codes.size(); ++c) stored[at + c] = static_cast<float>(codes[c]) * scale;
  }
  return squared_difference(rows, stored);
}

// At most a tile.
Contest compare(const std::vector<float>& rows, int32_t cols) {
  Contest out;
  out.by_row = error_as_rows(rows, cols);
  const auto n_rows = static_cast<int>(rows.size() / static_cast<size_t>(cols));
  std::vector<uint8_t> tile(kGroup.tile_bytes(cols));
  out.by_group_fits =
      kGroup.quantise_tile(rows.data(), cols, n_rows, cols, nullptr, tile.data()).ok();
  if (!out.by_group_fits) return out;
  std::vector<float> stored(rows.size());
  for (int r = 0; r < n_rows; ++r) {
    read_weights(kGroup, tile.data(), cols, r, stored.data() + ptrdiff_t{r} * cols);
  }
  out.by_group = squared_difference(rows, stored);
  return out;
}

// The format with the smaller squared error; int8 if the errors are equal. A matrix with more than
// 256 rows is judged by 256 of them, in evenly spaced tiles. If a scale does not fit in f16, int8
// wins.
FormatId closer(const PlannedMatrix& m, MatrixReaders& readers, ThreadPool& pool,
                const std::function<void()>& tick) {
  const int32_t cols = m.slot.cols;
  const int32_t n_tiles = (m.slot.rows + kTileRows - 1) / kTileRows;
  std::vector<Contest> tiles(slots_of(pool));
  Contest sum;
  InOrder work;
  work.n = std::min(n_tiles, kMostTiles);
  work.alone = !readers.together();
  work.make = [&](int worker, int64_t i, size_t at) {
    const auto first = static_cast<int32_t>(n_tiles * i / work.n) * kTileRows;
    std::vector<float> rows;
    for (int32_t r = first; r < std::min(first + kTileRows, m.slot.rows); ++r) {
      const float* row = readers.of(worker).row(r);
      check_finite(m, r, row);
      rows.insert(rows.end(), row, row + cols);
    }
    tiles[at] = compare(rows, cols);
  };
  work.use = [&](int64_t, size_t at) {
    sum.by_row += tiles[at].by_row;
    sum.by_group += tiles[at].by_group;
    sum.by_group_fits &= tiles[at].by_group_fits;
    return true;
  };
  work.tell = [&](int64_t) { tick(); };
  run_in_order(pool, work);
  return sum.by_group_fits && sum.by_group < sum.by_row ? FormatId::kInt8Group : FormatId::kInt8;
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

FormatId eight_bits(const PlannedMatrix& m, const Checkpoint& checkpoint, ThreadPool& pool,
                    const std::function<void()>& tick) {
  const PrecisionChoice& choice = m.precision;
  const bool contested = choice.for_floats() == FormatId::kInt8Group ||
                         (!choice.int8_by_row && has_int8_codes(m, checkpoint));
  if (!contested) return FormatId::kInt8;
  MatrixReaders readers(checkpoint, *m.tensor, m.source, m.slot.rows, m.slot.cols, pool);
  if (closer(m, readers, pool, tick) == FormatId::kInt8) return FormatId::kInt8;
  if (m.tensor->type == SourceType::kF16) return FormatId::kInt8Group;
  // Scales are in f16.
  const bool fits = largest_weight(m, checkpoint, pool, tick) <= 127 * kLargestHalf;
  return fits ? FormatId::kInt8Group : FormatId::kInt8;
}

}  // namespace moe
