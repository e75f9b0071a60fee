// SPDX-License-Identifier: MIT
#pragma once
// Uploads experts to the GPU: pinned memory and a dedicated stream.

#include "kernels/cuda/experts/expert_rates.h"
#include "kernels/cuda/launch.h"
#include "kernels/expert_memory.h"
#include "src/base/mutex.h"

namespace moe::cuda {

/// Alignment of host memory with matrices.
inline constexpr size_t kHostAlign = 64;

/// While one buffer is copied the next is filled. Any thread.
class ExpertCopies {
 public:
  static constexpr int kBuffers = 2;

  explicit ExpertCopies(ExpertRates& rates) : rates_(rates) {}
  ExpertCopies(const ExpertCopies&) = delete;
  ExpertCopies& operator=(const ExpertCopies&) = delete;
  ~ExpertCopies();
  Status open();

  /// As ExpertMemory::load(). `done` false: there is no pinned memory, and nothing was done.
  Status load(void* device, const HostFill& fill, Arrival* arrival, bool* done);
  /// Lends `bytes` of host memory until it is taken back; null: there is no pinned memory. Stops
  /// waiting once `cancelled` is true: MOE_ERR_CANCELLED.
  Status lend(size_t bytes, const std::atomic<bool>* cancelled, void** memory);
  void take_back(void* memory);
  /// Makes later work on `stream` wait for the arrival.
  cudaError_t await(cudaStream_t stream, Arrival arrival);
  /// Waits for the arrival on the host.
  cudaError_t wait_for(Arrival arrival);

 private:
  struct Buffer {
    void* memory = nullptr;
    size_t bytes = 0;
    cudaEvent_t begun = nullptr;  // of the latest copy
    cudaEvent_t copied = nullptr;
    double fill_seconds = -1;  // of the latest copy; below 0: not measured
    size_t n_bytes = 0;        // of the latest copy
    uint64_t n_copies = 0;     // begun
    uint64_t n_done = 0;       // copies known to be complete
    uint64_t last_use = 0;
    uint64_t ask_again = 0;  // when to retry growing after pinned memory was refused
    void* lent = nullptr;    // its memory while lent
    bool busy = false;       // being filled, or lent
  };
  static constexpr uint64_t kAskAgain = 64;  // uses before a retry

  Status take(size_t bytes, const std::atomic<bool>* cancelled, Buffer** out);
  /// take() with room, for a buffer without a pending copy; null if none.
  Status take_empty(size_t bytes, const std::atomic<bool>* cancelled, Buffer** out);
  void put_back(Buffer* buffer);
  Status fill_and_copy(Buffer* buffer, void* device, const HostFill& fill);
  cudaError_t finish(Buffer* buffer);
  void measure(Buffer* buffer);
  cudaError_t make_room(Buffer* buffer, size_t bytes);
  /// An arrival encodes a buffer and the number of its copy.
  Buffer* buffer_of(Arrival arrival, uint64_t* copy);

  ExpertRates& rates_;
  cudaStream_t stream_ = nullptr;
  Mutex mutex_;  // guards all below, except what belongs to a busy buffer's thread
  Condition freed_;
  uint64_t clock_ = 0;
  Buffer buffers_[kBuffers];
};

}  // namespace moe::cuda
