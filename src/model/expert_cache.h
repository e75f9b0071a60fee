// SPDX-License-Identifier: MIT
#pragma once
// Cache of offloaded experts: which are in memory, which are read next, which are evicted. See
// src/model/README.md.

#include "kernels/expert_memory.h"
#include "kernels/expert_source.h"
#include "src/base/mutex.h"
#include "src/base/os/clock.h"
#include "src/model/expert_readers.h"

namespace moe {

struct FileSegment;
class ExpertCache;

/// Link in a list of experts that may be evicted.
struct IdleLink {
  IdleLink* older = nullptr;
  IdleLink* newer = nullptr;
};

/// One expert of the model, as the cache knows it.
struct CachedExpert : IdleLink {
  /// Reads the expert to `memory` and binds its weights. Called without the cache's mutex.
  class Loader {
   public:
    virtual Status load(CachedExpert& expert, bool check, const std::atomic<bool>* cancelled,
                        uint8_t* scratch) = 0;

   protected:
    ~Loader() = default;
  };
  enum State : uint8_t {
    kAbsent,
    kQueued,    // for a reader, which makes it absent again before reading it
    kFilling,   // about to be read, though no token has chosen it
    kReading,   // by a reader or by the thread that wants it
    kRejoined,  // wanted again while a read that nobody waited for went on
    kReady      // held by operations, or linked
  };
  static bool is_absent(State s) { return s == kAbsent || s == kQueued; }
  bool absent() const { return is_absent(state); }
  bool reading() const { return state == kReading || state == kRejoined; }
  bool ready() const { return state == kReady; }

  void queue() { state = kQueued; }
  void unqueue() { state = kAbsent; }
  void fill() { state = kFilling; }
  void begin_read() { state = kReading; }
  void rejoin() { state = kRejoined; }
  void arrive() {
    state = kReady;
    checked = true;
    n_reads = 0;
  }
  /// It was evicted, or its read has failed.
  void leave() {
    state = kAbsent;
    memory = nullptr;
  }

  Loader* loader = nullptr;
  const FileSegment* segment = nullptr;
  void* memory = nullptr;         // null if absent
  CachedExpert* next = nullptr;   // in the queue of reads
  CachedExpert* after = nullptr;  // in the list of all experts
  Arrival arrival = 0;
  int32_t n_holds = 0;   // acquired, not yet released
  int32_t n_wants = 0;   // prefetched, not yet acquired
  int32_t n_reads = 0;   // reads on the host since it was loaded
  bool checked = false;  // its bytes were verified once
  State state = kAbsent;
};

/// Shared by the layers of one model. Any thread; functions marked so are called with the mutex
/// held.
class ExpertCache {
 public:
  ExpertCache(ExpertMemory& memory, const Allocator& allocator)
      : memory_(memory), readers_(*this, allocator) {}
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  ExpertMemory& memory() const { return memory_; }
  /// Call before any acquire. Measures how long threads wait.
  void set_clock(const Clock& clock) { clock_ = clock; }
  /// Call before any acquire. True: not all experts fit, so none is pinned.
  void set_scarce(bool scarce) { scarce_ = scarce; }
  bool scarce() const { return scarce_; }
  /// Call before any acquire. While nothing else is read, the readers load experts that were not
  /// chosen yet, as long as no other has to be evicted for them.
  void set_filling(bool on) { fills_ = on; }
  /// Call before any acquire, for every expert.
  void add(CachedExpert& expert);
  /// Starts reader threads; without any, the acquiring thread reads. `scratch_bytes`: memory per
  /// read besides the expert's slot.
  Status start_readers(int32_t n, size_t scratch_bytes) { return readers_.start(n, scratch_bytes); }
  /// Call when no expert is acquired any more.
  void stop_readers() { readers_.stop(); }

  /// As in ExpertSource.
  Status acquire(CachedExpert& expert, const ExpertWait& wait);
  void release(CachedExpert& expert);
  void retain(CachedExpert& expert);
  /// Prefetches those of `experts` whose indices are in `chosen`.
  void prefetch(CachedExpert* experts, const int32_t* chosen, int32_t n, ExpertStats* stats);
  void cancel_prefetch(CachedExpert* experts, const int32_t* chosen, int32_t n);
  /// Evicts `bytes`, or all idle experts if fewer. False if there are none.
  bool make_room(uint64_t bytes);
  /// Call before destroying the expert's source, while the cache is idle.
  void forget(CachedExpert& expert);

  /// The memory that an expert takes; add(), make_room() and fit_in() are given sums of these.
  uint64_t taken_by(const CachedExpert& expert) const;
  /// True if `missing` of a layer's `all` bytes fit in `free`, leaving room for one expert of the
  /// layers that are not resident. The caller holds the mutex.
  bool fit_in(uint64_t free, uint64_t missing, uint64_t all) const;

  /// Calls change(), which resizes the memory, until done() is true; meanwhile evicts idle experts
  /// for which leaves(memory) is true.
  template <class Change, class Done, class Leaves>
  Status reshape(Change&& change, Done&& done, Leaves&& leaves) {
    LockGuard guard(mutex);
    ++n_reshapes_;
    for (;;) {
      const Status status = change();
      if (done()) {
        --n_reshapes_;
        unfilled_ = first_listed_;  // there may be memory for more
        notify();
        readers_.wake();
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
  /// Bytes read to fill the cache. The caller holds the mutex.
  uint64_t filled_bytes() const { return filled_bytes_; }
  /// Bytes of the experts in memory. The caller holds the mutex.
  uint64_t expert_bytes() const { return ready_bytes_; }

  // For the readers, with the mutex held.
  // The next expert to read, with memory reserved; null if there is none or no room for it.
  CachedExpert* next_read();
  /// Reads it without holding the mutex.
  Status read(CachedExpert& expert, const std::atomic<bool>* cancelled, uint8_t* scratch);

  Mutex mutex;

 private:
  /// A thread waiting for room, first come first served.
  struct Waiter {
    Waiter* next = nullptr;
    bool in_line = false;
  };
  /// A thread waiting for a reader to read an expert.
  struct Wish {
    CachedExpert* expert = nullptr;
    Wish* next = nullptr;
    bool done = false;  // if the status is OK, the expert is held
    Status status;
  };
  /// Experts not held; ends.newer is the least recently used.
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
  /// Failed prefetch, reported to the thread that acquires the expert.
  struct Failure {
    CachedExpert* expert = nullptr;
    Status status;
  };
  static constexpr size_t kFailures = 4;  // beyond these the oldest expert is read again

  // The caller holds the mutex in all functions below.
  Status make_ready(CachedExpert& expert, const ExpertWait& wait);
  Status wait_for_reader(CachedExpert& expert, const std::atomic<bool>* cancelled);
  Status read_here(CachedExpert& expert, const ExpertWait& wait);
  Status reserve(CachedExpert& expert, bool urgent);
  CachedExpert* next_fill();
  bool evict(bool urgent);
  void remove(CachedExpert& expert);
  void hold(CachedExpert& expert);
  void place(CachedExpert& expert);
  void place_oldest(CachedExpert& expert);
  void link(CachedExpert& expert, IdleLink* older);
  void unlink(CachedExpert& expert);
  void grant(CachedExpert& expert, const Status& status);
  void count_use(const CachedExpert& expert, CachedExpert::State found, ExpertStats* stats);
  void notify();
  Status take_failure(CachedExpert& expert);
  bool awaited(const CachedExpert& expert) const;
  void join_read(CachedExpert& expert);
  void enqueue(CachedExpert& expert);
  void dequeue(CachedExpert& expert);
  bool may_take(const Waiter& waiter) const { return first_ == nullptr || first_ == &waiter; }
  void wait_in_line(Waiter* waiter, const std::atomic<bool>* cancelled);
  void leave_line(Waiter* waiter);

  ExpertMemory& memory_;
  Clock clock_ = system_clock();
  Condition changed_;  // an expert was released or loaded, a load failed, or the line moved
  bool scarce_ = false;
  bool fills_ = false;
  int32_t n_passing_ = 0;   // experts held or being read: memory that will be freed
  int32_t n_reading_ = 0;   // experts being read by readers
  int32_t n_reshapes_ = 0;  // in progress: the memory is being resized
  Waiter* first_ = nullptr;
  Ring idle_;
  Ring wanted_;   // prefetched: evicted only for a waiting thread, newest first
  Queue urgent_;  // experts that a thread waits for
  Queue queue_;   // prefetched experts
  Wish* wishes_ = nullptr;
  Failure failures_[kFailures];
  size_t next_failure_ = 0;
  uint64_t idle_bytes_ = 0;      // of both rings
  uint64_t resident_bytes_ = 0;  // of resident experts
  uint64_t all_bytes_ = 0;       // of all experts, and of the largest
  uint64_t largest_ = 0;
  uint64_t ready_bytes_ = 0;
  uint64_t filled_bytes_ = 0;
  CachedExpert* first_listed_ = nullptr;
  CachedExpert* last_listed_ = nullptr;
  CachedExpert* unfilled_ = nullptr;  // the first one in the list that may be absent
  ExpertStats stats_;
  ExpertReaders readers_;
};

}  // namespace moe
