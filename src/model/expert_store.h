#pragma once
// The experts of one layer: each is read when it is first asked for, and then stays.

#include "src/base/mutex.h"
#include "src/model/blob.h"

namespace moe {

/// Any thread. A failed acquire leaves the store as it was: the same or another expert can be asked
/// for.
class ExpertStore final : public ExpertSource {
 public:
  explicit ExpertStore(const Allocator& allocator) : experts_(allocator), networks_(allocator) {}
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  /// `loader` and what it refers to must outlive the store. n_sublayers as in MoeConfig.
  Status open(const BlobLoader& loader, int32_t layer, int32_t n_sublayers, const Norm& norm);

  Status acquire(int32_t expert, Expert* out) override;
  void release(int32_t) override {}
  void prefetch(const int32_t*, int32_t) override {}

 private:
  struct Slot {
    const FileSegment* segment = nullptr;
    Blob blob;
    uint8_t ready = 0;  // accessed atomically: set after blob and networks
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
