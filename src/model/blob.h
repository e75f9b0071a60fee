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
  /// The same in two steps, on a device with memory of its own: first the memory, then what comes
  /// there by Device::bring(). `check` false: these bytes were found good before. `cancelled`,
  /// which may be null, ends it before the read. When bring() fails, the blob keeps its memory and
  /// is of no use but to be destroyed.
  Status reserve(const BlobLoader& loader, const FileSegment& segment);
  Status bring(const BlobLoader& loader, const FileSegment& segment, bool check,
               const std::atomic<bool>* cancelled);
  /// Null while empty.
  const uint8_t* base() const { return base_; }
  Arrival arrival() const { return arrival_; }
  /// Of the memory that it owns.
  size_t bytes() const { return bytes_; }

 private:
  void swap(Blob& other) noexcept;
  Status read(const BlobLoader& loader, const FileSegment& segment);

  const uint8_t* base_ = nullptr;
  void* owned_ = nullptr;
  size_t bytes_ = 0;
  Device* device_ = nullptr;
  Arrival arrival_ = 0;  // of what is on its way to owned_
};

/// Checks codes, scales and tables of a segment that lies at `base`.
Status check_values(const MoeFile& file, const FileSegment& segment, const uint8_t* base,
                    int32_t n_experts);

}  // namespace moe
