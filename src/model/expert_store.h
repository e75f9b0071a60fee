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
  /// Somebody who waits for room, in turn.
  struct Waiter {
    Waiter* next = nullptr;
    bool in_line = false;
  };

  ExpertCache(Device& device, const Allocator& allocator) : device_(device), stores_(allocator) {}
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  Status add(ExpertStore* store);
  Device& device() const { return device_; }
  bool evicts() const { return !device_.uses_host_memory(); }
  /// Before any expert is acquired: whether not all of them fit, so that none is kept for good.
  void set_scarce(bool scarce) { scarce_ = scarce; }
  bool scarce() const { return scarce_; }

  // The caller of all below holds `mutex`.

  /// Frees the expert that nobody holds and that was not used for longest; false when all are held.
  /// Adds its bytes to `freed` unless null.
  bool evict(uint64_t* freed = nullptr);
  /// True when nobody waits for room, or `waiter` is the first who does.
  bool may_take(const Waiter& waiter) const { return first_ == nullptr || first_ == &waiter; }
  /// Waits in line until something may have changed; then look again.
  void wait_in_line(Waiter* waiter);
  void leave_line(Waiter* waiter);

  Mutex mutex;        // of all stores' slots where evicts()
  Condition changed;  // an expert was given back, or came, or did not; the line has moved
  uint64_t clock = 0;
  int32_t n_passing =
      0;  // experts that are on their way, or borrowed: room that will be free again

 private:
  Device& device_;
  Array<ExpertStore*> stores_;
  bool scarce_ = false;
  Waiter* first_ = nullptr;
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
  Status borrow(int32_t expert, bool wait, Expert* out) override;
  void give_back(int32_t expert) override;
  void keep(int32_t expert) override;
  bool at_hand(int32_t expert) override;
  bool on_host(int32_t expert, HostExpert* out) override;
  Status read_on_host(int32_t expert, uint8_t* room, HostExpert* out) override;
  void prefetch(const int32_t*, int32_t) override {}

 private:
  friend class ExpertCache;
  enum State : uint8_t { kAbsent, kReady, kComing };
  struct Slot {
    const FileSegment* segment = nullptr;
    Blob blob;
    uint64_t last_use = 0;  // these two only where experts can leave
    int32_t holds = 0;
    int32_t n_reads = 0;      // on the host since it was brought in last
    uint8_t state = kAbsent;  // accessed atomically: kReady after blob and networks
    bool checked = false;     // its bytes were found good once
  };
  static constexpr size_t kLocks = 16;  // loads of different experts rarely wait for each other

  Status find(int32_t expert) const;
  void describe(size_t expert, Expert* out) const;
  Status load(size_t expert);
  // These are for devices from whose memory experts leave; the caller holds cache_->mutex.
  Status hold(size_t expert, bool borrowed, bool wait);
  Status make_ready(size_t expert, bool borrowed, bool wait);
  Status reserve(Slot* slot);
  Status bring(size_t expert);
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
