// SPDX-License-Identifier: MIT
#pragma once
// One allocation of host memory, split into arrays by the code that also measures it.

#include "src/base/array.h"
#include "src/base/carver.h"

namespace moe {

/// Owns the memory of arrays that never grow.
class HostBuffer {
 public:
  explicit HostBuffer(const Allocator& allocator) : memory_(allocator) {}

  /// Allocates what lay_out(Carver&) takes, calling it twice: to measure and to assign. Frees what
  /// it had before. `what` names the buffer in messages.
  template <class LayOut>
  Status init(const char* what, LayOut&& lay_out) {
    uint64_t bytes = 0;
    memory_ = Array<uint8_t>(memory_.allocator());
    if (!measure(lay_out, &bytes) || bytes > SIZE_MAX) return out_of_memory(what, ~0ULL);
    if (!memory_.reserve(static_cast<size_t>(bytes)).ok()) return out_of_memory(what, bytes);
    Carver carver(memory_.data());
    lay_out(carver);
    return {};
  }

 private:
  Array<uint8_t> memory_;
};

/// The bytes that lay_out(Carver&) takes. If that overflows, more than any memory has, yet so
/// little that a few of these can be added.
template <class LayOut>
uint64_t measured(LayOut&& lay_out) {
  uint64_t bytes = 0;
  return measure(lay_out, &bytes) ? bytes : UINT64_MAX >> 8;
}

}  // namespace moe
