// SPDX-License-Identifier: MIT
#pragma once
// GPU memory with a limit. Caches freed blocks for reuse with the same size, because cudaMalloc and
// cudaFree wait for the whole GPU.

#include "kernels/cuda/launch.h"
#include "src/base/checked.h"
#include "src/base/mutex.h"

namespace moe::cuda {

/// True if there is no room at present.
inline bool out_of_room(const Status& status) {
  return status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
}

/// Optional memory that can be reclaimed.
class SpareMemory {
 public:
  /// Frees it for others. False if there is none.
  virtual bool give_back() = 0;
  /// Bytes that give_back() would free.
  virtual uint64_t bytes() = 0;

 protected:
  ~SpareMemory() = default;
};

/// Any thread.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() { trim(); }

  /// The bytes that alloc(bytes) takes from the limit. cudaMalloc seems to give each block above 1
  /// MiB pages of 2 MiB of its own; CUDA does not document this.
  static uint64_t taken_by(uint64_t bytes) {
    constexpr uint64_t kPage = uint64_t{2} << 20;
    return bytes <= kPage / 2 ? bytes : round_up(bytes, kPage);
  }
  void set_limit(uint64_t bytes) { limit_ = bytes; }
  uint64_t limit() const { return limit_; }
  /// Memory below the limit, including spare memory.
  uint64_t free_bytes();
  /// Asked to free memory before alloc() fails; may be null.
  void set_spare(SpareMemory* spare) { spare_ = spare; }
  /// MOE_ERR_BUDGET above the limit, MOE_ERR_MEMORY if the GPU has no more.
  Status alloc(size_t bytes, void** out);
  /// The same without reclaiming spare memory.
  Status alloc_spare(size_t bytes, void** out);
  void free(void* memory, size_t bytes);
  /// Returns cached blocks to the GPU.
  void trim();

 private:
  struct CachedBlock {
    void* memory;
    size_t bytes;
  };
  static constexpr size_t kMostCached = 1024;

  void trim_locked();

  Mutex mutex_;
  SpareMemory* spare_ = nullptr;
  uint64_t limit_ = 0;
  uint64_t taken_ = 0;  // from the GPU, including cached blocks
  CachedBlock cached_[kMostCached] = {};
  size_t n_cached_ = 0;
};

}  // namespace moe::cuda
