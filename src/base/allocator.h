// SPDX-License-Identifier: MIT
#pragma once
// Every allocation of the core goes through an Allocator and may fail.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moe {

/// Caller-replaceable memory source. `allocate` returns nullptr on failure; `align` is a power of
/// two. `free` gets a pointer from `allocate` and the size that was requested. Any thread.
struct Allocator {
  void* (*allocate)(void* user, size_t bytes, size_t align);
  void (*deallocate)(void* user, void* pointer, size_t bytes);
  void* user;
};

/// The system's memory (src/base/os/memory.h).
const Allocator& system_allocator();

inline void* allocate(const Allocator& a, size_t bytes, size_t align) {
  return a.allocate(a.user, bytes, align);
}
inline void deallocate(const Allocator& a, void* pointer, size_t bytes) {
  if (pointer != nullptr) a.deallocate(a.user, pointer, bytes);
}

/// Counts the bytes allocated from another allocator.
class CountingAllocator {
 public:
  explicit CountingAllocator(const Allocator& inner) : inner_(inner) {}
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;
  const Allocator& get() const { return counted_; }
  uint64_t bytes() const { return bytes_.load(); }

 private:
  static void* allocate_counted(void* self, size_t bytes, size_t align);
  static void free_counted(void* self, void* pointer, size_t bytes);

  const Allocator& inner_;
  Allocator counted_ = {allocate_counted, free_counted, this};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace moe
