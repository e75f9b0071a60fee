// SPDX-License-Identifier: MIT
#pragma once
// The blocks of a matrix as the checkpoint has them, for a format that holds them unchanged.

#include <vector>

#include "src/convert/plan.h"

namespace moe {

class SourceBlocks {
 public:
  /// A matrix with a format_of_codes() that is only_blocks(). Both must outlive this.
  SourceBlocks(const PlannedMatrix& matrix, const Checkpoint& checkpoint);

  int64_t row_bytes() const { return row_bytes_; }
  /// Rows [first, first + n), row_bytes() each; valid until the next call.
  const uint8_t* read(int32_t first, int n);

 private:
  const PlannedMatrix& matrix_;
  const Checkpoint& checkpoint_;
  const int64_t row_bytes_;
  std::vector<uint8_t> bytes_;
};

}  // namespace moe
