// SPDX-License-Identifier: MIT
#pragma once
// Experts and the source of a layer's experts.

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

/// Completion of an ExpertMemory::load(); 0: complete.
using Arrival = uint64_t;

/// One expert: a single Ffn, or X-MoE's stack of residual blocks (whose input is then subtracted).
struct Expert {
  const Ffn* ffn = nullptr;  // host memory
  int32_t n_sublayers = 0;   // 0: ffn[0] alone; n: stack of n blocks
  Arrival arrival = 0;       // of its weights
  uint64_t bytes = 0;        // of its weights; 0: unknown
};

/// An expert in host memory.
struct HostExpert {
  Ffn ffn;                // pointers to host memory, valid after the read
  uint64_t bytes = 0;     // of its weights
  bool in_place = false;  // no read is needed
  bool known = false;     // read and verified before; verifying makes the first read slower
  int32_t n_reads = 0;    // reads on the host since it was last loaded
};

/// Expert uses and cache hits. An operation is one MoE layer on one chunk of tokens; it uses an
/// expert once, however many tokens selected it. All zero if every expert is resident.
struct ExpertStats {
  uint64_t n_uses = 0;
  uint64_t n_hits = 0;      // experts found in memory
  uint64_t read_bytes = 0;  // bytes of the file, for the misses
  uint64_t wait_ns = 0;     // time that sessions waited for reads
};

/// How long acquire() may wait for an expert.
struct ExpertWait {
  enum Patience : uint8_t {
    kReady,  // do not wait: it must be in memory
    kRead,   // wait for the read, but not for memory
    kRoom    // wait for memory too. Deadlock rule: release all experts before waiting for memory.
  };
  Patience patience = kRead;
  const std::atomic<bool>* cancelled = nullptr;  // if it becomes true: MOE_ERR_CANCELLED
  ExpertStats* stats = nullptr;                  // the caller's, or null
};

/// Source of one layer's experts. The device acquires what routing selected. An acquired expert
/// stays in place until it is released. Call ExpertMemory::forget() before destroying a source or
/// reclaiming pinned experts. Any thread.
class ExpertSource {
 public:
  /// True if all experts fit at once: a device may acquire and pin every one.
  virtual bool all_stay() const { return true; }
  /// Valid for at most one step unless pinned. MOE_ERR_BUDGET or MOE_ERR_MEMORY: not in memory, and
  /// no room at present.
  virtual Status acquire(int32_t expert, const ExpertWait& wait, Expert* out) = 0;
  virtual void release(int32_t) {}
  /// Pins an acquired expert: it is never released.
  virtual void retain(int32_t) {}
  /// True if all experts plus `more` bytes fit in `free`, leaving room for one swapped expert.
  virtual bool fit_in(uint64_t free, uint64_t more) {
    (void)free, (void)more;
    return true;
  }
  /// Evicts idle experts. False if there were none.
  virtual bool make_room(uint64_t bytes) {
    (void)bytes;
    return false;
  }
  /// True if the expert is in memory. It may be evicted at any time.
  virtual bool at_hand(int32_t) { return true; }
  /// True if it is neither in memory nor being loaded, and loading it would evict another expert.
  virtual bool would_evict(int32_t) { return false; }
  /// False if it cannot be read on the host; otherwise describes the result of reading.
  virtual bool on_host(int32_t expert, HostExpert* out) {
    (void)expert, (void)out;
    return false;
  }
  /// Reads it to `room` (out->bytes, 64-byte aligned) unless it is in place.
  virtual Status read_on_host(int32_t expert, uint8_t* room, HostExpert* out) {
    (void)expert, (void)room, (void)out;
    return Status::error(MOE_ERR_UNSUPPORTED, "experts cannot be read on the host");
  }
  /// The caller will acquire each of these once, in this order, or call cancel_prefetch(). Starts
  /// reading the misses as far as there is unreserved memory. Never waits.
  virtual void prefetch(const int32_t* experts, int32_t n, ExpertStats* stats) {
    (void)experts, (void)n, (void)stats;
  }
  virtual void cancel_prefetch(const int32_t* experts, int32_t n) { (void)experts, (void)n; }

 protected:
  ~ExpertSource() = default;
};

}  // namespace moe
