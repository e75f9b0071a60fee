#pragma once
// The experts of one layer: each is read when it is first asked for, and then stays as long as
// there is room.

#include "src/base/mutex.h"
#include "src/model/blob.h"

namespace moe {

/// What the stores of one model share: on a device with memory of its own, which experts leave when
/// the next one does not fit. In host memory every expert stays.
class ExpertCache {
 public:
  /// Somebody who waits for room, in turn.
  struct Waiter {
    Waiter* next = nullptr;
    bool in_line = false;
  };
  /// An expert's place among those that may leave.
  struct Idle {
    Idle* older = nullptr;
    Idle* newer = nullptr;
  };

  explicit ExpertCache(Device& device) : device_(device) { idle_.older = idle_.newer = &idle_; }
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  Device& device() const { return device_; }
  bool evicts() const { return !device_.uses_host_memory(); }
  /// Before any expert is acquired: whether not all of them fit, so that none is kept for good.
  void set_scarce(bool scarce) { scarce_ = scarce; }
  bool scarce() const { return scarce_; }
  /// Before any expert is acquired: there is an expert of so many bytes.
  void add(uint64_t bytes);

  // The caller of all below holds `mutex`.

  /// Frees the expert that nobody holds and that was given back longest ago. Its bytes; 0 when all
  /// are held.
  uint64_t evict();
  /// Frees so many bytes, or as many as there are. False when there are none.
  bool make_room(uint64_t bytes);
  /// The expert may leave from now on, after all others; or no longer.
  void add_idle(Idle* slot, uint64_t bytes);
  void take_idle(Idle* slot, uint64_t bytes);
  /// Whether `missing` bytes of a layer's `all` come into memory of which `free` are free, and one
  /// more expert of the layers that do not stay.
  bool fit_in(uint64_t free, uint64_t missing, uint64_t all) const;
  /// True when nobody waits for room, or `waiter` is the first who does.
  bool may_take(const Waiter& waiter) const { return first_ == nullptr || first_ == &waiter; }
  /// Waits in line until something may have changed; then look again.
  void wait_in_line(Waiter* waiter, const std::atomic<bool>* cancelled);
  void leave_line(Waiter* waiter);

  Mutex mutex;        // of all stores' slots where evicts()
  Condition changed;  // an expert was given back, or came, or did not; the line has moved
  int32_t n_passing =
      0;  // experts that are on their way, or borrowed: room that will be free again
  uint64_t kept_bytes = 0;  // of experts that stay

 private:
  Device& device_;
  bool scarce_ = false;
  Waiter* first_ = nullptr;
  Idle idle_;  // the ends of a ring: newer is the oldest, older the newest
  uint64_t idle_bytes_ = 0;
  uint64_t all_bytes_ = 0;  // of all experts, and of the largest
  uint64_t largest_ = 0;
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
  Status borrow(int32_t expert, const ExpertWait& wait, Expert* out) override;
  void give_back(int32_t expert) override;
  void keep(int32_t expert) override;
  bool fit_in(uint64_t free, uint64_t more) override;
  bool make_room(uint64_t bytes) override;
  bool at_hand(int32_t expert) override;
  bool on_host(int32_t expert, HostExpert* out) override;
  Status read_on_host(int32_t expert, uint8_t* room, HostExpert* out) override;
  void prefetch(const int32_t*, int32_t) override {}

 private:
  friend class ExpertCache;
  enum State : uint8_t { kAbsent, kReady, kComing };
  struct Slot : ExpertCache::Idle {
    const FileSegment* segment = nullptr;
    Blob blob;
    int32_t holds = 0;        // only where experts can leave
    int32_t n_reads = 0;      // on the host since it was brought in last
    uint8_t state = kAbsent;  // accessed atomically: kReady after blob and networks
    bool checked = false;     // its bytes were found good once
  };
  static constexpr size_t kLocks = 16;  // loads of different experts rarely wait for each other

  Status find(int32_t expert) const;
  void describe(size_t expert, Expert* out) const;
  Status load(size_t expert);
  // These are for devices from whose memory experts leave; the caller holds cache_->mutex.
  Status hold(size_t expert, bool borrowed, const ExpertWait& wait);
  void let_go(int32_t expert);
  Status make_ready(size_t expert, bool borrowed, const ExpertWait& wait);
  Status reserve(Slot* slot);
  Status bring(size_t expert, const std::atomic<bool>* cancelled);

  const BlobLoader* loader_ = nullptr;
  ExpertCache* cache_ = nullptr;
  Norm norm_;
  int32_t n_sublayers_ = 0;
  size_t n_networks_ = 1;    // per expert
  uint64_t bytes_ = 0;       // of all experts
  uint64_t held_bytes_ = 0;  // of those that somebody holds
  Array<Slot> experts_;
  Array<Ffn> networks_;  // (n_experts, n_networks_)
  Mutex locks_[kLocks];
};

}  // namespace moe
