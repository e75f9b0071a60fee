// SPDX-License-Identifier: MIT
// No memory: only the caller has some (moe_allocator).
#include "src/base/os/memory.h"

namespace moe {

bool system_has_memory() { return false; }
void* system_allocate(size_t, size_t) { return nullptr; }
void system_deallocate(void*, size_t) {}
void prefer_large_pages(void*, size_t) {}

void populate_pages(void*, size_t) {}

}  // namespace moe
