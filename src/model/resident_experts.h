// SPDX-License-Identifier: MIT
#pragma once
// Resident experts of one layer: each is read on first use and remains in memory.

#include "src/base/mutex.h"
#include "src/model/blob.h"

namespace moe {

/// After a failed acquire this object is unchanged: any expert can be acquired again.
class ResidentExperts final : public ExpertSource {
 public:
  explicit ResidentExperts(const Allocator& allocator)
      : experts_(allocator), networks_(allocator) {}
  ResidentExperts(const ResidentExperts&) = delete;
  ResidentExperts& operator=(const ResidentExperts&) = delete;

  /// `loader` and the objects it refers to must outlive this. n_sublayers as in MoeConfig.
  Status open(const BlobLoader& loader, int32_t layer, int32_t n_sublayers, const Norm& norm);

  Status acquire(int32_t expert, const ExpertWait& wait, Expert* out) override;

 private:
  struct Slot {
    const FileSegment* segment = nullptr;
    Blob blob;
    bool ready = false;  // accessed atomically, after blob and networks
  };
  static constexpr size_t kLocks = 16;  // loads of different experts rarely wait for each other

  Status load(size_t expert);

  const BlobLoader* loader_ = nullptr;
  Norm norm_;
  int32_t n_sublayers_ = 0;
  size_t n_networks_ = 1;  // per expert
  Array<Slot> experts_;
  Array<Ffn> networks_;  // (n_experts, n_networks_)
  Mutex locks_[kLocks];
};

}  // namespace moe
