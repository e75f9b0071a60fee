#pragma once
// The experts of one layer: each is read when it is first asked for, and then stays as long as
// there is room.

#include "src/base/mutex.h"
#include "src/model/blob.h"

namespace moe {

class ExpertStore;

/// What the stores of one model share: on a device with memory of its own, which experts leave when
/// the next one does not fit. In host memory every expert stays.
class ExpertCache {
 public:
  ExpertCache(Device& device, const Allocator& allocator) : device_(device), stores_(allocator) {}
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  Status add(ExpertStore* store);
  Device& device() const { return device_; }
  bool evicts() const { return !device_.uses_host_memory(); }
  /// Before any expert is acquired: not all of them fit, so none may be kept for good.
  void set_scarce() { scarce_ = true; }
  bool scarce() const { return scarce_; }
  /// Frees the expert that nobody holds and that was not used for longest; false when all are held.
  /// Adds its bytes to `freed` unless null. The caller holds `mutex`.
  bool evict(uint64_t* freed = nullptr);

  Mutex mutex;  // of all stores' slots where evicts()
  uint64_t clock = 0;

 private:
  Device& device_;
  Array<ExpertStore*> stores_;
  bool scarce_ = false;
};

/// Any thread. A failed acquire leaves the store as it was: the same or another expert can be asked
/// for.
class ExpertStore final : public ExpertSource {
 public:
  explicit ExpertStore(const Allocator& allocator) : experts_(allocator), networks_(allocator) {}
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;
  ~ExpertStore();

  /// `loader`, what it refers to, and `cache` must outlive the store. n_sublayers as in MoeConfig.
  Status open(const BlobLoader& loader, ExpertCache& cache, int32_t layer, int32_t n_sublayers,
              const Norm& norm);

  bool all_stay() const override { return !cache_->scarce(); }
  Status acquire(int32_t expert, Expert* out) override;
  void release(int32_t expert) override;
  void prefetch(const int32_t*, int32_t) override {}

 private:
  friend class ExpertCache;
  struct Slot {
    const FileSegment* segment = nullptr;
    Blob blob;
    uint64_t last_use = 0;  // these two only where experts can leave
    int32_t holds = 0;
    uint8_t ready = 0;  // accessed atomically: set after blob and networks
  };
  static constexpr size_t kLocks = 16;  // loads of different experts rarely wait for each other

  Status load(size_t expert);
  Status load_once(size_t expert);
  Status hold(size_t expert);
  /// The slot of longest ago that nobody holds; null when there is none.
  Slot* oldest();

  const BlobLoader* loader_ = nullptr;
  ExpertCache* cache_ = nullptr;
  Norm norm_;
  int32_t n_sublayers_ = 0;
  size_t n_networks_ = 1;  // per expert
  Array<Slot> experts_;
  Array<Ffn> networks_;  // (n_experts, n_networks_)
  Mutex locks_[kLocks];
};

}  // namespace moe
