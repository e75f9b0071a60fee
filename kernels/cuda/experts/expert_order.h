// SPDX-License-Identifier: MIT
#pragma once
// The host's view of a layer's routing, and the order in which experts are computed.

#include "kernels/cuda/ffn_call.h"

namespace moe::cuda {

/// The selected experts: first those on the GPU, then those to upload, then those for the CPU. The
/// pairs in the device's lists are in the same order.
class ExpertOrder {
 public:
  explicit ExpertOrder(const Allocator& a) : experts_(a), begin_(a), found_begin_(a), moved_(a) {}

  /// Reads the routing back, the only wait inside a layer, and sorts.
  Status open(FfnCall& call);

  size_t size() const { return experts_.size(); }
  const int32_t* experts() const { return experts_.data(); }
  int32_t begin(size_t i) const { return begin_[i]; }  // first pair; of size(): all of them
  size_t n_at_hand() const { return n_at_hand_; }
  size_t n_on_gpu() const { return n_on_gpu_; }  // including those to upload
  /// Tokens of expert i's pairs; only for experts on the CPU.
  const int32_t* tokens(size_t i) const { return tokens_ + found_begin_[i]; }

 private:
  enum Place : uint8_t { kAtHand, kUploaded, kCpu };
  Status sort(FfnCall& call, size_t n);
  Place place_of(FfnCall& call, int32_t expert);

  Array<int32_t> experts_;
  Array<int32_t> begin_;        // (size + 1)
  Array<int32_t> found_begin_;  // (size) as routing left them
  Array<int32_t> moved_;        // (n_experts): offset by which an expert's pairs move
  size_t n_at_hand_ = 0;
  size_t n_on_gpu_ = 0;
  const int32_t* tokens_ = nullptr;  // of pairs as routing left them
  bool cpu_ = false;                 // the CPU can compute some
};

}  // namespace moe::cuda
