#pragma once
// GPU memory under one limit. Freed blocks are kept for the next one of their size, because
// cudaMalloc and cudaFree wait for the whole GPU.

#include "kernels/cuda/launch.h"
#include "src/base/mutex.h"

namespace moe::cuda {

/// Any thread.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() { trim(); }

  void set_limit(uint64_t bytes) { limit_ = bytes; }
  uint64_t limit() const { return limit_; }
  /// MOE_ERR_BUDGET above the limit, MOE_ERR_MEMORY when the GPU has no more.
  Status alloc(size_t bytes, void** out);
  void free(void* memory, size_t bytes);
  /// Gives kept blocks back to the GPU.
  void trim();

 private:
  struct Kept {
    void* memory;
    size_t bytes;
  };
  static constexpr size_t kMostKept = 1024;

  void trim_locked();

  Mutex mutex_;
  uint64_t limit_ = 0;
  uint64_t taken_ = 0;  // from the GPU, kept blocks included
  Kept kept_[kMostKept] = {};
  size_t n_kept_ = 0;
};

}  // namespace moe::cuda
