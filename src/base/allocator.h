#pragma once
// Every allocation of the core goes through an Allocator and may fail.

#include <cstddef>

namespace moe {

/// Caller-replaceable memory source. `allocate` returns nullptr on failure; `align` is a power of
/// two. `free` gets exactly what `allocate` returned and the size that was asked for. Any thread.
struct Allocator {
  void* (*allocate)(void* user, size_t bytes, size_t align);
  void (*deallocate)(void* user, void* pointer, size_t bytes);
  void* user;
};

/// malloc and free of the C library.
const Allocator& system_allocator();

inline void* allocate(const Allocator& a, size_t bytes, size_t align) {
  return a.allocate(a.user, bytes, align);
}
inline void deallocate(const Allocator& a, void* pointer, size_t bytes) {
  if (pointer != nullptr) a.deallocate(a.user, pointer, bytes);
}

/// A hint for memory that is about to be written and then read again and again: large pages make
/// reading from memory several per cent faster. Does nothing where the system has no such hint or
/// the memory is small.
void prefer_large_pages(void* memory, size_t bytes);

}  // namespace moe
