// SPDX-License-Identifier: MIT
#pragma once
// Memory of the system.

#include <cstddef>

namespace moe {

/// False without a system: then only the caller has memory (moe_env_params.allocator).
bool system_has_memory();

/// Memory of any size with an alignment that is a power of two; nullptr if there is none, as always
/// without a system. Large blocks return to the system as soon as they are freed.
void* system_allocate(size_t bytes, size_t align);
/// Takes back a block of system_allocate() of this size; not nullptr.
void system_deallocate(void* memory, size_t bytes);

/// Hint for memory that is written once and read often: large pages make reads several per cent
/// faster. No effect on small memory or where the system has no such hint.
void prefer_large_pages(void* memory, size_t bytes);

/// Hint for memory that is about to be written as a whole: the system provides its pages in one
/// call and not at the first write to each. What is in the memory stays.
void populate_pages(void* memory, size_t bytes);

}  // namespace moe
