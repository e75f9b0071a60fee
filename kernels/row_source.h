// SPDX-License-Identifier: MIT
#pragma once
// Where the rows of a table come from that is not in memory.

#include "src/base/status.h"

namespace moe {

/// Any thread.
class RowSource {
 public:
  /// Writes one row to out (cols).
  virtual Status read(int32_t row, float* out) = 0;

 protected:
  ~RowSource() = default;
};

}  // namespace moe
