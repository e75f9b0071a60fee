#pragma once
// Experts, and where a device gets those of a layer from.

#include <atomic>
#include <cstdint>

#include "kernels/kinds.h"
#include "quant/format.h"
#include "src/base/status.h"

namespace moe {

/// One feed-forward network. A plain one has no gate: y = down(act(up(x))).
struct Ffn {
  Matrix gate;  // (d_ff, d_in), may be empty
  Matrix up;    // (d_ff, d_in)
  Matrix down;  // (d_in, d_ff)
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
  Norm in_norm;   // X-MoE sub-layers only
  Norm sub_norm;  // SubLN before down
};

/// When an ExpertMemory::bring() is done; 0: it is.
using Arrival = uint64_t;

/// One expert: a single Ffn, or X-MoE's stack of residual blocks (then the input is taken off
/// again).
struct Expert {
  const Ffn* ffn = nullptr;  // host memory
  int32_t n_sublayers = 0;   // 0: ffn[0] alone; n: stack of n blocks
  Arrival arrival = 0;       // of its weights
  uint64_t bytes = 0;        // of its weights; 0: not known
};

/// An expert as the host can have it.
struct HostExpert {
  Ffn ffn;                // its pointers are those of the host once it was read
  uint64_t bytes = 0;     // of its weights
  bool in_place = false;  // it lies in host memory
  bool known = false;     // it was read and found good before, which takes longer the first time
  int32_t n_reads = 0;    // on the host since it was brought in last
};

/// Experts that operations used. An operation is one MoE layer of one chunk of tokens; it uses an
/// expert once, however many tokens chose it. All zero where every expert stays in memory.
struct ExpertStats {
  uint64_t n_uses = 0;
  uint64_t n_hits = 0;      // of these, experts found in memory
  uint64_t read_bytes = 0;  // of the file, for the others
  uint64_t wait_ns = 0;     // nanoseconds for which sessions waited until they were read
};

/// How long somebody waits for an expert.
struct ExpertWait {
  enum Patience : uint8_t {
    kReady,  // not at all: it must be in memory
    kRead,   // until it is read, but not for room
    kRoom    // for room too. The caller has acquired nothing, so that those who have can go on.
  };
  Patience patience = kRead;
  const std::atomic<bool>* cancelled = nullptr;  // once it is set: MOE_ERR_CANCELLED
  ExpertStats* stats = nullptr;                  // the caller's, or null
};

/// Where the experts of one layer come from. The device asks for what routing chose. An expert that
/// was acquired stays where it is until it is released. A source that dies, or wants back what a
/// device keeps, tells it so (ExpertMemory::forget). Any thread.
class ExpertSource {
 public:
  /// True when all experts can be held at once: a device may acquire every one and keep them.
  virtual bool all_stay() const { return true; }
  /// For a step at most, unless it is kept. MOE_ERR_BUDGET or MOE_ERR_MEMORY: it is not in memory
  /// and there is no room, or not now.
  virtual Status acquire(int32_t expert, const ExpertWait& wait, Expert* out) = 0;
  virtual void release(int32_t) {}
  /// What was acquired stays for good, and is not released.
  virtual void keep(int32_t) {}
  /// Whether all experts could be acquired and kept now, with `more` bytes beside them, where the
  /// device has `free` bytes left, and the offloaded ones have the room that they need.
  virtual bool fit_in(uint64_t free, uint64_t more) {
    (void)free, (void)more;
    return true;
  }
  /// Evicts experts that nobody uses. False when there were none.
  virtual bool make_room(uint64_t bytes) {
    (void)bytes;
    return false;
  }
  /// True when the expert need not be brought in first. It may leave at any time.
  virtual bool at_hand(int32_t) { return true; }
  /// True when it is neither in memory nor on its way, and another expert would have to leave for
  /// it.
  virtual bool would_evict(int32_t) { return false; }
  /// False when it cannot be read on the host; otherwise what reading will give.
  virtual bool on_host(int32_t expert, HostExpert* out) {
    (void)expert, (void)out;
    return false;
  }
  /// Reads it, into `room` (out->bytes, 64-byte aligned) unless it is in place.
  virtual Status read_on_host(int32_t expert, uint8_t* room, HostExpert* out) {
    (void)expert, (void)room, (void)out;
    return Status::error(MOE_ERR_UNSUPPORTED, "experts cannot be read on the host");
  }
  /// The caller will acquire each of these once, in this order, or call cancel_prefetch(): reads of
  /// those that are not in memory begin, as far as there is room that nobody wants. Never waits.
  virtual void prefetch(const int32_t* experts, int32_t n, ExpertStats* stats) {
    (void)experts, (void)n, (void)stats;
  }
  virtual void cancel_prefetch(const int32_t* experts, int32_t n) { (void)experts, (void)n; }

 protected:
  ~ExpertSource() = default;
};

}  // namespace moe
