#pragma once
// What the host knows of a layer's routing, and in which order it has the experts computed.

#include "kernels/cuda/moe_call.h"

namespace moe::cuda {

/// The experts that routing chose: those that are at hand, those that are to be brought in, those
/// that the CPU computes. The pairs of the device's lists are in that order, too.
class ExpertOrder {
 public:
  explicit ExpertOrder(const Allocator& a) : experts_(a), begin_(a), found_begin_(a), moved_(a) {}

  /// Reads what routing found back, which is the only wait inside a layer, and sorts.
  Status open(MoeCall& call);

  size_t size() const { return experts_.size(); }
  const int32_t* experts() const { return experts_.data(); }
  int32_t begin(size_t i) const { return begin_[i]; }  // first pair; of size(): all of them
  size_t n_at_hand() const { return n_at_hand_; }
  size_t n_on_gpu() const { return n_on_gpu_; }  // these and those to be brought in
  /// Which tokens the pairs of expert i are of; only for experts of the CPU.
  const int32_t* tokens(size_t i) const { return tokens_ + found_begin_[i]; }

 private:
  enum Place : uint8_t { kAtHand, kBrought, kCpu };
  Status sort(MoeCall& call, size_t n);
  Place place_of(MoeCall& call, int32_t expert);

  Array<int32_t> experts_;
  Array<int32_t> begin_;        // (size + 1)
  Array<int32_t> found_begin_;  // (size) as routing left them
  Array<int32_t> moved_;        // (n_experts): how far an expert's pairs move
  size_t n_at_hand_ = 0;
  size_t n_on_gpu_ = 0;
  const int32_t* tokens_ = nullptr;  // of pairs as routing left them
  bool cpu_ = false;                 // the CPU can take some
};

}  // namespace moe::cuda
