#pragma once
// Experts that a stream's kernels read.

#include "kernels/cuda/launch.h"
#include "kernels/device.h"
#include "src/base/array.h"

namespace moe::cuda {

/// Acquired experts, turn by turn: those of a turn are released when what was in the stream at
/// its end has run, which the host has to wait for. Of one stream, used like it.
class HeldExperts {
 public:
  explicit HeldExperts(const Allocator& allocator) : held_(allocator) {}
  HeldExperts(const HeldExperts&) = delete;
  HeldExperts& operator=(const HeldExperts&) = delete;
  ~HeldExperts();
  Status open();

  /// Nothing is held.
  bool empty() const { return held_.empty(); }
  /// Acquires for the turn that is to come.
  Status acquire(ExpertSource& source, int32_t expert, const ExpertWait& wait, Expert* out);
  /// Releases the latest one, before anything reads it.
  void release_last();
  /// What was acquired since the last turn is read by what is in the stream now.
  cudaError_t end_turn(cudaStream_t stream);
  /// Waits for the oldest turn, if there is one.
  cudaError_t finish_oldest();
  /// The stream was waited for, or is lost: all turns are over.
  void finish_turns();
  /// As finish_turns(), and what was acquired since is released too.
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
