// SPDX-License-Identifier: MIT
#pragma once
// The bytes of one segment in memory that a device can read.

#include "formats/moe/reader.h"
#include "kernels/device.h"

namespace moe {

/// Parameters for loading a segment.
struct BlobLoader {
  const MoeFile& file;
  Device& device;
  const Allocator& allocator;
  bool verify;        // verify checksums as well
  int32_t n_experts;  // of the layer: the range of a hash router's table
};

/// Owns device memory or refers to the file's memory. Move-only; empty until load().
class Blob {
 public:
  Blob() = default;
  Blob(Blob&& other) noexcept { swap(other); }
  Blob& operator=(Blob&& other) noexcept {
    swap(other);
    return *this;
  }
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob();

  /// Loads the segment once; verifies checksum, codes, scales and tables. On failure it stays
  /// empty, and load() may be repeated. MOE_ERR_CORRUPT, MOE_ERR_RANGE, MOE_ERR_NON_FINITE,
  /// MOE_ERR_IO, MOE_ERR_MEMORY.
  Status load(const BlobLoader& loader, const FileSegment& segment);
  /// Null while empty.
  const uint8_t* base() const { return base_; }

 private:
  void swap(Blob& other) noexcept;
  Status read(const BlobLoader& loader, const FileSegment& segment);

  const uint8_t* base_ = nullptr;
  void* owned_ = nullptr;
  size_t bytes_ = 0;
  Device* device_ = nullptr;
};

/// Verifies codes, scales and tables of a segment at `base`.
Status check_values(const MoeFile& file, const FileSegment& segment, const uint8_t* base,
                    int32_t n_experts);

/// MOE_ERR_RANGE unless `expert` is in 0..n-1.
inline Status check_expert(int32_t expert, size_t n) {
  if (expert >= 0 && static_cast<size_t>(expert) < n) return {};
  return Status::error(MOE_ERR_RANGE, "expert: expected 0..%zu, found %d", n - 1, expert);
}

}  // namespace moe
