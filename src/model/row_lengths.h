// SPDX-License-Identifier: MIT
#pragma once
// Lengths of the rows of matrices that never change, measured once: a cosine router divides by
// those of its embeddings.

#include "kernels/device.h"

namespace moe {

/// Owns the lengths, in device memory. One thread at a time.
class RowLengths {
 public:
  explicit RowLengths(const Allocator& a) : allocator_(a) {}
  RowLengths(const RowLengths&) = delete;
  RowLengths& operator=(const RowLengths&) = delete;
  ~RowLengths();

  /// Allocates room for the rows of all matrices. Called once.
  Status reserve(Device& device, size_t n_rows);
  uint64_t bytes() const { return n_rows_ * sizeof(float); }
  /// Drops what was measured.
  void clear() { n_measured_ = 0; }
  /// *out: row_length() of each row of `m`, which is in device memory. There must be room.
  Status measure(const Matrix& m, const float** out);

 private:
  Status measure_downloaded(const Matrix& m, float* to);

  const Allocator& allocator_;
  Device* device_ = nullptr;
  float* memory_ = nullptr;
  size_t n_rows_ = 0;
  size_t n_measured_ = 0;
};

}  // namespace moe
