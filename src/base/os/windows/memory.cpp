// SPDX-License-Identifier: MIT
// Memory of Windows: the heap, and pages of its own for large blocks.
#include "src/base/os/memory.h"

#include <malloc.h>
#include <windows.h>

#include <cstdint>

namespace moe {
namespace {

constexpr size_t kPages = size_t{1} << 20;  // from this size on
constexpr size_t kGranule = 65536;          // what VirtualAlloc() aligns to

// A block with a larger alignment is placed in a larger reservation; the pointer before it finds
// the beginning again.
void* from_pages(size_t bytes, size_t align) {
  const size_t more = align > kGranule ? align + kGranule : kGranule;
  if (bytes > SIZE_MAX - more) return nullptr;
  void* all = VirtualAlloc(nullptr, bytes + more, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (all == nullptr) return nullptr;
  const uintptr_t unit = align > kGranule ? align : kGranule;
  const uintptr_t at = (reinterpret_cast<uintptr_t>(all) + unit) / unit * unit;
  reinterpret_cast<void**>(at)[-1] = all;
  return reinterpret_cast<void*>(at);
}

}  // namespace

bool system_has_memory() { return true; }

void* system_allocate(size_t bytes, size_t align) {
  if (bytes >= kPages) return from_pages(bytes, align);
  return _aligned_malloc(bytes == 0 ? 1 : bytes, align < 16 ? 16 : align);
}

void system_deallocate(void* memory, size_t bytes) {
  if (bytes < kPages) return _aligned_free(memory);
  VirtualFree(static_cast<void**>(memory)[-1], 0, MEM_RELEASE);
}

// Large pages need a privilege that few users have.
void prefer_large_pages(void*, size_t) {}

void populate_pages(void*, size_t) {}

}  // namespace moe
