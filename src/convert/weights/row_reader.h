#pragma once
// The rows of one matrix of a checkpoint as floats, however it lies there.

#include <vector>

#include "formats/import/checkpoint.h"
#include "src/convert/weights/unpack.h"

namespace moe {

/// Reads ahead in blocks of half a MB (a transposed matrix: up to 64 MB), so rows should be asked
/// for in order. The same rows may be read again.
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

  const Checkpoint& checkpoint_;
  const SourceTensor& tensor_;
  std::optional<Unpacker> unpacker_;
  SourceGroups row_groups_, col_groups_;
  SourcePick picked_rows_, picked_cols_;
  int64_t offset_, row_stride_, col_stride_;
  int32_t rows_, cols_;     // of the matrix that rows and columns are picked from
  int32_t block_rows_ = 1;  // rows read at once
  int32_t first_ = 0;       // rows in the buffer
  int32_t n_buffered_ = 0;
  std::vector<float> buffer_;  // (block_rows, cols)
  std::vector<float> span_;    // transposed: one column of the block, with what lies between;
                               // grouped columns: one row of the tensor; transposed group by
                               // group: a group
  int64_t span_at_ = 0;        // where it begins
  std::vector<float> picked_;  // columns of one row
};

/// Throws MOE_ERR_SHAPE when the tensor has not the shape that the source says, or the slice leaves
/// the tensor. `rows`, `cols`: of the matrix; cols 1: a vector.
void check_source(const SourceTensor& tensor, const Source& source, int32_t rows, int32_t cols);

}  // namespace moe
