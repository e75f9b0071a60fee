// SPDX-License-Identifier: MIT
#pragma once
// Reads the rows of one matrix of a checkpoint as floats, from any layout.

#include <optional>
#include <vector>

#include "formats/import/checkpoint.h"
#include "src/base/thread_pool.h"
#include "src/convert/weights/unpack.h"

namespace moe {

/// Rows of `cols` floats that are read at once, and one thread packs at once: whole tiles, about
/// 256 KB.
int32_t rows_per_part(int32_t cols);

/// True if a few rows are read as quickly as many: several threads may have a reader each.
bool rows_are_together(const SourceTensor& tensor, const Source& source);

/// Reads ahead in blocks of a part (transposed matrices: up to 64 MB), so request rows in order.
/// Rows may be read again.
class RowReader {
 public:
  /// `source` was checked against `tensor` (check_source).
  RowReader(const Checkpoint& checkpoint, const SourceTensor& tensor, const Source& source,
            int32_t rows, int32_t cols);

  /// The row in order of columns; valid until the next call.
  const float* row(int32_t r);

 private:
  const float* whole_row(int32_t r);
  void fill(int32_t first);
  void read_transposed(int32_t first, int32_t n);
  void read_grouped(int32_t r, float* out);
  void read_turned(int64_t at, float* out);
  void multiply(int32_t first, int32_t n);

  const Checkpoint& checkpoint_;
  const SourceTensor& tensor_;
  std::optional<Unpacker> unpacker_;
  SourceGroups row_groups_, col_groups_;
  SourcePick picked_rows_, picked_cols_;
  std::vector<SourceFactor> factors_;
  int64_t offset_, row_stride_, col_stride_;
  int32_t rows_, cols_;     // of the matrix that rows and columns are selected from
  int32_t block_rows_ = 1;  // rows read at once
  int32_t first_ = 0;       // rows in the buffer
  int32_t n_buffered_ = 0;
  std::vector<float> buffer_;  // (block_rows, cols)
  /// transposed: one column of the block with everything in between; grouped columns: one row of
  /// the tensor; transposed by groups: one group
  std::vector<float> span_;
  int64_t span_at_ = 0;        // its offset
  std::vector<float> picked_;  // selected columns of one row
};

/// A reader for each thread that needs one.
class MatrixReaders {
 public:
  /// All arguments must outlive this.
  MatrixReaders(const Checkpoint& checkpoint, const SourceTensor& tensor, const Source& source,
                int32_t rows, int32_t cols, const ThreadPool& pool)
      : checkpoint_(checkpoint),
        tensor_(tensor),
        source_(source),
        rows_(rows),
        cols_(cols),
        readers_(static_cast<size_t>(pool.n_threads())) {}

  bool together() const { return rows_are_together(tensor_, source_); }
  RowReader& of(int worker) {
    std::optional<RowReader>& reader = readers_[static_cast<size_t>(worker)];
    if (!reader) reader.emplace(checkpoint_, tensor_, source_, rows_, cols_);
    return *reader;
  }

 private:
  const Checkpoint& checkpoint_;
  const SourceTensor& tensor_;
  const Source& source_;
  const int32_t rows_, cols_;
  std::vector<std::optional<RowReader>> readers_;
};

/// Offset of item i of `groups` from the first group; -1: zero, not stored. `unit`: distance
/// between items.
int64_t place_in_groups(const SourceGroups& groups, int32_t i, int64_t unit);

/// Throws MOE_ERR_SHAPE if the tensor lacks the shape required by the source, or the slice exceeds
/// the tensor. `rows`, `cols`: of the matrix; cols 1: a vector.
void check_source(const SourceTensor& tensor, const Source& source, int32_t rows, int32_t cols);

}  // namespace moe
