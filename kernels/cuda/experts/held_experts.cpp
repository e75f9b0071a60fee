// SPDX-License-Identifier: MIT
// Counts the experts that queued kernels read, and releases them when an event says that the
// kernels are done.
#include "kernels/cuda/experts/held_experts.h"

#include <algorithm>

namespace moe::cuda {

HeldExperts::~HeldExperts() {
  release_all();
  for (Turn& t : turns_) {
    if (t.done != nullptr) (void)cudaEventDestroy(t.done);
  }
}

Status HeldExperts::open() {
  for (Turn& t : turns_) {
    MOE_TRY(cuda_status(cudaEventCreateWithFlags(&t.done, cudaEventDisableTiming),
                        "making a CUDA event"));
  }
  return {};
}

Status HeldExperts::acquire(ExpertSource& source, int32_t expert, const ExpertWait& wait,
                            Expert* out) {
  MOE_TRY(held_.reserve(held_.size() + 1));
  MOE_TRY(source.acquire(expert, wait, out));
  ++n_open_;
  return held_.push({&source, expert});
}

void HeldExperts::release_last() {
  const Held& last = held_.back();
  last.source->release(last.expert);
  --n_open_;
  (void)held_.resize(held_.size() - 1);
}

cudaError_t HeldExperts::end_turn(cudaStream_t stream) {
  if (n_open_ == 0) return cudaSuccess;
  if (n_turns_ == kTurns) {
    if (const cudaError_t error = finish_oldest(); error != cudaSuccess) return error;
  }
  Turn& turn = turns_[(first_ + n_turns_) % kTurns];
  if (const cudaError_t error = cudaEventRecord(turn.done, stream); error != cudaSuccess) {
    return error;
  }
  turn.n = n_open_;
  n_open_ = 0;
  ++n_turns_;
  return cudaSuccess;
}

cudaError_t HeldExperts::finish_oldest() {
  if (n_turns_ == 0) return cudaSuccess;
  const cudaError_t error = cudaEventSynchronize(turns_[first_].done);
  if (error != cudaSuccess) return error;
  release(turns_[first_].n);
  first_ = (first_ + 1) % kTurns;
  --n_turns_;
  return cudaSuccess;
}

void HeldExperts::finish_turns() {
  release(held_.size() - n_open_);
  n_turns_ = 0;
}

void HeldExperts::release_all() {
  release(held_.size());
  n_turns_ = 0;
  n_open_ = 0;
}

void HeldExperts::release(size_t n) {
  for (size_t i = 0; i < n; ++i) held_[i].source->release(held_[i].expert);
  std::copy(held_.data() + n, held_.data() + held_.size(), held_.data());
  (void)held_.resize(held_.size() - n);
}

}  // namespace moe::cuda
