// SPDX-License-Identifier: MIT
#pragma once
// Experts in use by a stream's kernels.

#include "kernels/cuda/launch.h"
#include "kernels/device.h"
#include "src/base/array.h"

namespace moe::cuda {

/// Acquired experts by turn: those of a turn are released after the stream's work up to its end has
/// run, which the host must wait for. Owned by one stream.
class HeldExperts {
 public:
  explicit HeldExperts(const Allocator& allocator) : held_(allocator) {}
  HeldExperts(const HeldExperts&) = delete;
  HeldExperts& operator=(const HeldExperts&) = delete;
  ~HeldExperts();
  Status open();

  /// True if no expert is held.
  bool empty() const { return held_.empty(); }
  /// Acquires for the next turn.
  Status acquire(ExpertSource& source, int32_t expert, const ExpertWait& wait, Expert* out);
  /// Releases the latest one before anything uses it.
  void release_last();
  /// Ends a turn: the experts acquired in it are used by work already in the stream.
  cudaError_t end_turn(cudaStream_t stream);
  /// Waits for the oldest turn, if there is one.
  cudaError_t finish_oldest();
  /// Call after waiting for the stream, or losing it: ends all turns.
  void finish_turns();
  /// As finish_turns(), and also releases the experts of the open turn.
  void release_all();

 private:
  struct Held {
    ExpertSource* source;
    int32_t expert;
  };
  struct Turn {
    cudaEvent_t done = nullptr;
    size_t n = 0;  // experts
  };
  static constexpr size_t kTurns = 4;

  void release(size_t n);

  Array<Held> held_;  // oldest first
  Turn turns_[kTurns];
  size_t first_ = 0;
  size_t n_turns_ = 0;
  size_t n_open_ = 0;  // acquired since the last turn's end
};

}  // namespace moe::cuda
