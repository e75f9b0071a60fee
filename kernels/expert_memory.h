// SPDX-License-Identifier: MIT
#pragma once
// Memory for experts that are loaded and evicted.

#include <cstddef>

#include "kernels/expert_source.h"

namespace moe {

/// Writes `bytes` to the host memory that it is given.
struct HostFill {
  Status (*write)(void* user, void* host) = nullptr;
  void* user = nullptr;
  size_t bytes = 0;
  bool known = true;                             // false: the first, slower fill
  const std::atomic<bool>* cancelled = nullptr;  // ends a wait for memory
};

/// A device's own memory, or an arena in host memory.
class ExpertMemory {
 public:
  /// Allocates memory for one expert, 64-byte aligned. MOE_ERR_BUDGET or MOE_ERR_MEMORY if full.
  virtual Status alloc(size_t bytes, void** out) = 0;
  virtual void free(void* memory, size_t bytes) = 0;
  /// The bytes that alloc(bytes) takes from the memory's limit.
  virtual uint64_t taken_by(uint64_t bytes) const { return bytes; }
  /// False if alloc() can still provide the largest expert.
  virtual bool full() const { return true; }
  /// Bytes that load() may write at an expert of `bytes`.
  virtual uint64_t room_bytes(uint64_t bytes) const { return bytes; }
  /// Lets `fill` write an expert, through pinned memory if needed. The upload may be asynchronous:
  /// `arrival` identifies its completion. A stream that uses the expert waits for it
  /// (Expert::arrival); call wait_for() before freeing the memory. Returns a failure of `fill`.
  virtual Status load(void* memory, const HostFill& fill, Arrival* arrival) = 0;
  /// Waits for an upload to complete.
  virtual void wait_for(Arrival) {}
  /// Maximum host memory that load() uses for experts of `bytes`.
  virtual uint64_t staging_bytes(uint64_t) const { return 0; }
  /// Call forget() before destroying a source: drops its cached experts. No stream may be using
  /// them.
  virtual void forget(const ExpertSource&) {}

 protected:
  ~ExpertMemory() = default;
};

}  // namespace moe
