#pragma once
// GPU memory under one limit. Freed blocks are kept for the next one of their size, because
// cudaMalloc and cudaFree wait for the whole GPU.

#include "kernels/cuda/launch.h"
#include "src/base/mutex.h"

namespace moe::cuda {

/// There is no room now.
inline bool out_of_room(const Status& status) {
  return status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
}

/// Memory that is nice to have.
class SpareMemory {
 public:
  /// Frees it for others. False when there is none.
  virtual bool give_back() = 0;
  /// How much that would be.
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

  void set_limit(uint64_t bytes) { limit_ = bytes; }
  uint64_t limit() const { return limit_; }
  /// What is left below the limit, or would be once the spare memory is given back.
  uint64_t free_bytes();
  /// Who is asked to make room before alloc() fails; null: nobody.
  void set_spare(SpareMemory* spare) { spare_ = spare; }
  /// MOE_ERR_BUDGET above the limit, MOE_ERR_MEMORY when the GPU has no more.
  Status alloc(size_t bytes, void** out);
  /// The same, but nobody makes room for it.
  Status alloc_spare(size_t bytes, void** out);
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
  SpareMemory* spare_ = nullptr;
  uint64_t limit_ = 0;
  uint64_t taken_ = 0;  // from the GPU, kept blocks included
  Kept kept_[kMostKept] = {};
  size_t n_kept_ = 0;
};

}  // namespace moe::cuda
