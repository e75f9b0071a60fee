#pragma once
// Memory that experts come into and leave.

#include <cstddef>

#include "kernels/expert_source.h"

namespace moe {

/// Writes `bytes` to host memory that is given to it.
struct HostFill {
  Status (*write)(void* user, void* host) = nullptr;
  void* user = nullptr;
  size_t bytes = 0;
  bool known = true;                             // false: it takes longer than it will again
  const std::atomic<bool>* cancelled = nullptr;  // ends a wait for memory to write to
};

/// A device's own memory, or an arena in host memory.
class ExpertMemory {
 public:
  /// Room for one expert, 64-byte aligned. MOE_ERR_BUDGET or MOE_ERR_MEMORY when it is full.
  virtual Status alloc(size_t bytes, void** out) = 0;
  virtual void free(void* memory, size_t bytes) = 0;
  /// False when alloc() has room for an expert of the largest size.
  virtual bool full() const { return true; }
  /// What bring() may write where an expert of `bytes` goes.
  virtual uint64_t room_bytes(uint64_t bytes) const { return bytes; }
  /// Has `fill` write the expert, if need be to memory from which the device copies fast. The copy
  /// may go on after the return: `arrival` stands for its end. What reads the expert in a stream
  /// says what it waits for (Expert::arrival); the memory may not be freed before settle(). A
  /// failure of `fill` is returned.
  virtual Status bring(void* memory, const HostFill& fill, Arrival* arrival) = 0;
  /// Waits for the end of a copy.
  virtual void settle(Arrival) {}
  /// Most host memory that bring() holds for experts of `bytes`.
  virtual uint64_t bring_bytes(uint64_t) const { return 0; }
  /// Forgets what was kept of this source's experts. No stream may be using them.
  virtual void forget(const ExpertSource&) {}

 protected:
  ~ExpertMemory() = default;
};

}  // namespace moe
