// SPDX-License-Identifier: MIT
#pragma once
// XXH64, inlined in each includer.

#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moe {

inline uint64_t xxh64(const void* bytes, size_t n) { return XXH64(bytes, n, 0); }

/// xxh64() of bytes that come in pieces.
class XxhStream {
 public:
  XxhStream() { XXH64_reset(&state_, 0); }
  void add(const void* bytes, size_t n) { XXH64_update(&state_, bytes, n); }
  uint64_t value() const { return XXH64_digest(&state_); }

 private:
  XXH64_state_t state_;
};

}  // namespace moe
