// SPDX-License-Identifier: MIT
// The system's allocator, and one that counts the bytes in use for another.
#include "src/base/allocator.h"

#include "src/base/os/memory.h"

namespace moe {
namespace {

void* from_system(void*, size_t bytes, size_t align) { return system_allocate(bytes, align); }
void to_system(void*, void* pointer, size_t bytes) { system_deallocate(pointer, bytes); }

constexpr Allocator kSystem = {from_system, to_system, nullptr};

}  // namespace

const Allocator& system_allocator() { return kSystem; }

void* CountingAllocator::allocate_counted(void* self, size_t bytes, size_t align) {
  auto& counting = *static_cast<CountingAllocator*>(self);
  void* memory = allocate(counting.inner_, bytes, align);
  if (memory != nullptr) counting.bytes_ += bytes;
  return memory;
}

void CountingAllocator::free_counted(void* self, void* pointer, size_t bytes) {
  auto& counting = *static_cast<CountingAllocator*>(self);
  counting.bytes_ -= bytes;
  deallocate(counting.inner_, pointer, bytes);
}

}  // namespace moe
