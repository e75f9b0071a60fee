// SPDX-License-Identifier: MIT
#pragma once
// The second pass over a matrix: packs 16 rows at a time into a tile, with scales and error.

#include <utility>
#include <vector>

#include "quant/weight_format.h"
#include "src/convert/weights/compensate.h"
#include "src/convert/weights/row_reader.h"
#include "src/convert/weights/source_blocks.h"
#include "src/convert/weights/source_scales.h"
#include "src/convert/weights/storage.h"

namespace moe {

/// Difference between a matrix and its stored values.
struct StorageError {
  double squared_error = 0;
  double squared_norm = 0;
  double largest = 0;         // absolute
  double weighted_error = 0;  // weighted by second moments or mean squares of inputs
  double weighted_norm = 0;   // the same for the matrix itself

  void add(const StorageError& other);
  bool lossless() const { return largest == 0; }
  /// Frobenius norm of the difference / that of the matrix; 0 for zeros.
  double relative() const;
  double weighted() const;
};

/// Statistics of a matrix's inputs; null if unknown.
struct KnownInputs {
  const float* importance = nullptr;  // (cols)
  std::shared_ptr<const Feedback> feedback;
};

/// The scales stored after the tiles, before any is known.
std::vector<float> first_scales(const PlannedMatrix& matrix, const Storage& storage);

/// Several threads may have a packer each, for different tiles of one matrix.
class TilePacker {
 public:
  /// All arguments must outlive the packer, except `storage`. `scales`: first_scales(), of which
  /// pack() writes those of its rows.
  TilePacker(const PlannedMatrix& matrix, const Storage& storage, const Checkpoint& checkpoint,
             const KnownInputs& inputs, std::vector<float>* scales);

  /// Packs rows 16 t to 16 t + 15 to out (the format's tile_bytes). Each once; in order of t it
  /// reads least.
  /// Throws MOE_ERR_NON_FINITE, and MOE_ERR_RANGE for a value that the format cannot represent or a
  /// table id out of range.
  void pack(int32_t t, uint8_t* out);

  /// The error of the tiles since the last call.
  StorageError take_error() { return std::exchange(error_, {}); }
  /// True if input statistics were used.
  bool is_weighted() const { return importance_ != nullptr; }
  bool is_compensated() const { return compensator_.has_value() && !fell_back_; }

 private:
  void read_rows(int32_t first, int n);
  void read_ids(int32_t first, int n);
  void put_own_scales(int32_t first, int n, uint8_t* out);
  void quantise_groups(int32_t first, int n, uint8_t* out);
  void quantise_rows(int32_t first, int n);
  void quantise_row(int32_t r, const float* row, int8_t* codes);
  void put_group_scales(int32_t r, const float* scales);
  float scale_at(int32_t r, int32_t c) const;
  void measure(int32_t first, int n, const uint8_t* tile);
  void weigh(int row, const float* wanted, int32_t from, int32_t to, float scale);
  void measure_moments();

  const PlannedMatrix& matrix_;
  const Checkpoint& checkpoint_;
  const Storage storage_;
  const WeightFormat& format_;
  const float* importance_;
  RowReader reader_;
  std::optional<SourceScales> own_scales_;
  std::optional<SourceBlocks> own_blocks_;
  std::optional<Compensator> compensator_;
  bool fell_back_ = false;  // some rows were rounded without compensation
  std::vector<float>& scales_;
  std::vector<float> values_;      // (16, cols)
  std::vector<int8_t> codes_;      // (16, cols)
  std::vector<int32_t> ids_;       // (16), tables
  std::vector<float> stored_;      // (cols): one row read back
  std::vector<float> row_scales_;  // group scales of one row
  StorageError error_;
};

}  // namespace moe
