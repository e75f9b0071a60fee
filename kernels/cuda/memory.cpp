// SPDX-License-Identifier: MIT
// Allocates from cached blocks first; frees the cache when the limit or the GPU's memory is
// reached.
#include "kernels/cuda/memory.h"

#include <algorithm>

namespace moe::cuda {
namespace {

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

}  // namespace

Status GpuMemory::alloc(size_t bytes, void** out) {
  Status status = alloc_spare(bytes, out);
  if (out_of_room(status) && spare_ != nullptr && spare_->give_back()) {
    status = alloc_spare(bytes, out);
  }
  return status;
}

uint64_t GpuMemory::free_bytes() {
  const uint64_t spare = spare_ != nullptr ? spare_->bytes() : 0;
  LockGuard guard(mutex_);
  uint64_t used = taken_ - std::min(taken_, spare);
  for (size_t i = 0; i < n_cached_; ++i) used -= std::min(used, taken_by(cached_[i].bytes));
  return used < limit_ ? limit_ - used : 0;
}

Status GpuMemory::alloc_spare(size_t bytes, void** out) {
  const size_t size = bytes == 0 ? 1 : bytes;
  LockGuard guard(mutex_);
  for (size_t i = n_cached_; i > 0; --i) {  // the latest first
    if (cached_[i - 1].bytes != size) continue;
    *out = cached_[i - 1].memory;
    cached_[i - 1] = cached_[--n_cached_];
    return {};
  }
  const uint64_t more = taken_by(size);
  if (taken_ + more > limit_) trim_locked();
  if (taken_ + more > limit_) {
    return Status::error(MOE_ERR_BUDGET,
                         "GPU memory: %.3f MB more than the %.3f MB in use exceed the limit of "
                         "%.3f MB",
                         megabytes(more), megabytes(taken_), megabytes(limit_));
  }
  cudaError_t error = cudaMalloc(out, size);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    trim_locked();
    error = cudaMalloc(out, size);
    (void)cudaGetLastError();
  }
  if (error == cudaErrorMemoryAllocation) return out_of_memory("GPU memory", size);
  MOE_CUDA_TRY(error);
  taken_ += more;
  return {};
}

void GpuMemory::free(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  const size_t size = bytes == 0 ? 1 : bytes;
  LockGuard guard(mutex_);
  if (n_cached_ == kMostCached) trim_locked();
  cached_[n_cached_++] = {memory, size};
}

void GpuMemory::trim() {
  LockGuard guard(mutex_);
  trim_locked();
}

void GpuMemory::trim_locked() {
  for (size_t i = 0; i < n_cached_; ++i) {
    (void)cudaFree(cached_[i].memory);  // of a lost GPU: nothing can be done
    taken_ -= taken_by(cached_[i].bytes);
  }
  n_cached_ = 0;
}

}  // namespace moe::cuda
