#pragma once
// The way of experts to the GPU: pinned memory, and a stream of copies of its own.

#include "kernels/cuda/experts/expert_rates.h"
#include "kernels/cuda/launch.h"
#include "kernels/expert_memory.h"
#include "src/base/mutex.h"

namespace moe::cuda {

/// Of host memory that holds matrices.
inline constexpr size_t kHostAlign = 64;

/// While one buffer is copied the next one is filled. Any thread.
class ExpertCopies {
 public:
  static constexpr int kBuffers = 2;

  explicit ExpertCopies(ExpertRates& rates) : rates_(rates) {}
  ExpertCopies(const ExpertCopies&) = delete;
  ExpertCopies& operator=(const ExpertCopies&) = delete;
  ~ExpertCopies();
  Status open();

  /// As ExpertMemory::bring(). `done` false: there is no pinned memory, and nothing was done.
  Status bring(void* device, const HostFill& fill, Arrival* arrival, bool* done);
  /// Host memory for `bytes` until it is taken back; null: there is no pinned memory. Once
  /// `cancelled` is set, nobody is waited for any more: MOE_ERR_CANCELLED.
  Status lend(size_t bytes, const std::atomic<bool>* cancelled, void** memory);
  void take_back(void* memory);
  /// What is enqueued on `stream` from now on comes after the arrival.
  cudaError_t await(cudaStream_t stream, Arrival arrival);
  /// Waits for it.
  cudaError_t settle(Arrival arrival);

 private:
  struct Buffer {
    void* memory = nullptr;
    size_t bytes = 0;
    cudaEvent_t begun = nullptr;  // of the latest copy
    cudaEvent_t copied = nullptr;
    double fill_seconds = -1;  // of the latest copy; below 0: not to be counted
    size_t n_bytes = 0;        // of the latest copy
    uint64_t n_copies = 0;     // begun
    uint64_t n_done = 0;       // of these, known to be done
    uint64_t last_use = 0;
    uint64_t ask_again = 0;  // from then on it may grow; there was no pinned memory
    void* lent = nullptr;    // its memory, while somebody else has it
    bool busy = false;       // a thread fills it, or has it
  };
  static constexpr uint64_t kAskAgain = 64;  // uses after a refusal

  Status take(size_t bytes, const std::atomic<bool>* cancelled, Buffer** out);
  /// take(), with room, when no copy needs what is in it; null: there is none.
  Status take_empty(size_t bytes, const std::atomic<bool>* cancelled, Buffer** out);
  void put_back(Buffer* buffer);
  Status fill_and_copy(Buffer* buffer, void* device, const HostFill& fill);
  cudaError_t finish(Buffer* buffer);
  void measure(Buffer* buffer);
  cudaError_t make_room(Buffer* buffer, size_t bytes);
  /// An arrival is the number of a buffer's copy, and which buffer.
  Buffer* buffer_of(Arrival arrival, uint64_t* copy);

  ExpertRates& rates_;
  cudaStream_t stream_ = nullptr;
  Mutex mutex_;  // of all below but what belongs to a busy buffer's thread
  Condition freed_;
  uint64_t clock_ = 0;
  Buffer buffers_[kBuffers];
};

}  // namespace moe::cuda
