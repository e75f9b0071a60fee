#pragma once
// The cache of offloaded experts: which are in memory, which are read next, and which are evicted.
// src/model/README.md says how.

#include "kernels/expert_memory.h"
#include "src/base/mutex.h"
#include "src/model/expert_readers.h"
#include "src/model/expert_stats.h"

namespace moe {

struct FileSegment;
class ExpertCache;

/// An expert's place among those that may be evicted.
struct IdleLink {
  IdleLink* older = nullptr;
  IdleLink* newer = nullptr;
};

/// One expert of the model, as the cache knows it.
struct CachedExpert : IdleLink {
  /// Reads it to `memory` and binds its weights. Without the cache's mutex.
  class Loader {
   public:
    virtual Status load(CachedExpert& expert, bool check, const std::atomic<bool>* cancelled,
                        uint8_t* scratch) = 0;

   protected:
    ~Loader() = default;
  };
  enum State : uint8_t { kAbsent, kComing, kReady };

  Loader* loader = nullptr;
  const FileSegment* segment = nullptr;
  void* memory = nullptr;        // unless it is absent
  CachedExpert* next = nullptr;  // in the queue of reads
  Arrival arrival = 0;
  int32_t n_holds = 0;  // it was acquired, and not released
  int32_t n_wants = 0;  // it was prefetched, and not acquired
  int32_t n_waits = 0;  // somebody waits until it is read
  int32_t n_reads = 0;  // on the host since it was brought in last
  bool queued = false;
  bool checked = false;  // its bytes were found good once
  State state = kAbsent;
};

/// What the layers of one model share. Any thread; functions whose comment says so are called with
/// the mutex held.
class ExpertCache {
 public:
  ExpertCache(ExpertMemory& memory, const Allocator& allocator)
      : memory_(memory), readers_(*this, allocator) {}
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  ExpertMemory& memory() const { return memory_; }
  /// Before any expert is acquired: whether not all of them fit, so that none is kept for good.
  void set_scarce(bool scarce) { scarce_ = scarce; }
  bool scarce() const { return scarce_; }
  /// Before any expert is acquired: there is an expert of so many bytes.
  void add(uint64_t bytes);
  /// Has threads read from now on; without any, whoever needs an expert reads it. `scratch_bytes`:
  /// what reading one takes beside its room.
  Status start_readers(int32_t n, size_t scratch_bytes) { return readers_.start(n, scratch_bytes); }
  /// No expert is acquired any more.
  void stop_readers() { readers_.stop(); }

  /// As ExpertSource::acquire(), and so on.
  Status acquire(CachedExpert& expert, const ExpertWait& wait);
  void release(CachedExpert& expert);
  void keep(CachedExpert& expert);
  /// Of `experts`, those whose numbers are in `chosen`.
  void prefetch(CachedExpert* experts, const int32_t* chosen, int32_t n, ExpertStats* stats);
  void cancel_prefetch(CachedExpert* experts, const int32_t* chosen, int32_t n);
  /// Evicts `bytes`, or as much as nobody uses. False when that is nothing.
  bool make_room(uint64_t bytes);
  /// The expert's source is about to die; nobody uses the cache.
  void forget(CachedExpert& expert);

  /// Whether `missing` bytes of a layer's `all` come into memory of which `free` are free, and one
  /// more expert of the layers that do not stay. The caller holds the mutex.
  bool fit_in(uint64_t free, uint64_t missing, uint64_t all) const;

  /// Calls `change`(), which changes what the memory holds, until `done`() after that; experts for
  /// which `leaves`(memory) is true are evicted meanwhile, when nobody uses them any more.
  template <class Change, class Done, class Leaves>
  Status reshape(Change&& change, Done&& done, Leaves&& leaves) {
    LockGuard guard(mutex);
    ++n_reshapes_;
    for (;;) {
      const Status status = change();
      if (done()) {
        --n_reshapes_;
        notify();
        return status;
      }
      bool any = false;
      for (Ring* ring : {&idle_, &wanted_}) {
        for (IdleLink* at = ring->ends.newer; at != &ring->ends;) {
          auto* expert = static_cast<CachedExpert*>(at);
          at = at->newer;
          if (!leaves(expert->memory)) continue;
          remove(*expert);
          any = true;
        }
      }
      if (!any) changed_.wait(mutex);
    }
  }

  ExpertStats stats();
  /// Of the experts in memory. The caller holds the mutex.
  uint64_t expert_bytes() const { return ready_bytes_; }

  // For the readers, with the mutex held.
  /// The next expert to be read, with memory reserved; null: there is none, or no room for it.
  CachedExpert* next_read();
  /// Reads it, while others go on.
  Status read(CachedExpert& expert, const std::atomic<bool>* cancelled, uint8_t* scratch);

  Mutex mutex;

 private:
  /// Somebody who waits for room, in turn.
  struct Waiter {
    Waiter* next = nullptr;
    bool in_line = false;
  };
  /// Somebody who waits until the readers have read an expert.
  struct Wish {
    CachedExpert* expert = nullptr;
    Wish* next = nullptr;
    bool done = false;  // and if the status is OK the expert is held
    Status status;
  };
  /// Experts that nobody holds: ends.newer is the least recently used one.
  struct Ring {
    Ring() { ends.older = ends.newer = &ends; }
    bool empty() const { return ends.newer == &ends; }
    IdleLink ends;
  };
  struct Queue {
    CachedExpert* first = nullptr;
    CachedExpert* last = nullptr;
    void push(CachedExpert* expert);
    bool remove(CachedExpert* expert);
  };
  /// A prefetch that failed, for whoever wanted it.
  struct Failure {
    CachedExpert* expert = nullptr;
    Status status;
  };
  static constexpr size_t kFailures = 4;  // of more than that the oldest is read once more

  // The caller of all below holds the mutex.
  Status make_ready(CachedExpert& expert, const ExpertWait& wait);
  Status wait_for_reader(CachedExpert& expert, const std::atomic<bool>* cancelled);
  Status read_here(CachedExpert& expert, const ExpertWait& wait);
  Status reserve(CachedExpert& expert, bool urgent);
  bool evict(bool urgent);
  void remove(CachedExpert& expert);
  void hold(CachedExpert& expert);
  void place(CachedExpert& expert);
  void unlink(CachedExpert& expert);
  void grant(CachedExpert& expert, const Status& status);
  void count_use(const CachedExpert& expert, CachedExpert::State found, ExpertStats* stats);
  void notify();
  Status take_failure(CachedExpert& expert);
  void dequeue(CachedExpert& expert);
  bool may_take(const Waiter& waiter) const { return first_ == nullptr || first_ == &waiter; }
  void wait_in_line(Waiter* waiter, const std::atomic<bool>* cancelled);
  void leave_line(Waiter* waiter);

  ExpertMemory& memory_;
  Condition changed_;  // an expert was released, or came, or did not; the line has moved
  bool scarce_ = false;
  int32_t n_passing_ = 0;   // experts on their way, or held: room that will be free again
  int32_t n_reshapes_ = 0;  // going on: the memory is about to change
  Waiter* first_ = nullptr;
  Ring idle_;
  Ring wanted_;   // by a prefetch: these leave only for somebody who waits, the newest first
  Queue urgent_;  // experts that somebody waits for
  Queue queue_;   // experts that were prefetched
  Wish* wishes_ = nullptr;
  Failure failures_[kFailures];
  size_t next_failure_ = 0;
  uint64_t idle_bytes_ = 0;  // of both rings
  uint64_t kept_bytes_ = 0;  // of experts that stay
  uint64_t all_bytes_ = 0;   // of all experts, and of the largest
  uint64_t largest_ = 0;
  uint64_t ready_bytes_ = 0;
  ExpertStats stats_;
  ExpertReaders readers_;
};

}  // namespace moe
