// SPDX-License-Identifier: MIT
// Finds the rows of a matrix in its tensor and reads their bytes.
#include "src/convert/weights/source_blocks.h"

#include "src/convert/weights/source_scales.h"

namespace moe {

SourceBlocks::SourceBlocks(const PlannedMatrix& matrix, const Checkpoint& checkpoint)
    : matrix_(matrix),
      checkpoint_(checkpoint),
      row_bytes_(static_cast<int64_t>(
          source_bytes(matrix.tensor->type, static_cast<uint64_t>(matrix.slot.cols)))) {}

const uint8_t* SourceBlocks::read(int32_t first, int n) {
  const auto size = static_cast<size_t>(row_bytes_);
  bytes_.resize(static_cast<size_t>(n) * size);
  for (int i = 0; i < n; ++i) {
    const auto row = static_cast<uint64_t>(row_of_tensor(matrix_, first + i));
    checkpoint_.read_bytes(*matrix_.tensor, row * size, size,
                           bytes_.data() + static_cast<size_t>(i) * size);
  }
  return bytes_.data();
}

}  // namespace moe
