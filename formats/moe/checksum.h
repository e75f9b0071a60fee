// SPDX-License-Identifier: MIT
#pragma once
// XXH64, inlined in each includer.

#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moe {

inline uint64_t xxh64(const void* bytes, size_t n) { return XXH64(bytes, n, 0); }

}  // namespace moe
