#pragma once
// The bytes of one segment where a device can read them.

#include "formats/moe/reader.h"
#include "kernels/device.h"

namespace moe {

/// What loading a segment needs to know.
struct BlobLoader {
  const MoeFile& file;
  Device& device;
  const Allocator& allocator;
  bool verify;        // checksums too
  int32_t n_experts;  // of the layer: the range of a hash router's table
};

/// Owns device memory, or refers to the file's own. Move-only; empty until load().
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

  /// Brings the segment in, once; checks checksum, codes, scales and tables. On failure it stays
  /// empty and can be tried again. MOE_ERR_CORRUPT, MOE_ERR_RANGE, MOE_ERR_NON_FINITE, MOE_ERR_IO,
  /// MOE_ERR_MEMORY.
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

/// Checks codes, scales and tables of a segment that lies at `base`.
Status check_values(const MoeFile& file, const FileSegment& segment, const uint8_t* base,
                    int32_t n_experts);

/// MOE_ERR_RANGE unless it is one of a layer's `n`.
inline Status check_expert(int32_t expert, size_t n) {
  if (expert >= 0 && static_cast<size_t>(expert) < n) return {};
  return Status::error(MOE_ERR_RANGE, "expert: expected 0..%zu, found %d", n - 1, expert);
}

}  // namespace moe
