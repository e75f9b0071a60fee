// SPDX-License-Identifier: MIT
#include "src/base/allocator.h"

#include <cstdint>
#include <cstdlib>

#include "src/base/checked.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace moe {
namespace {

#if defined(__linux__)
size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
#endif

void* from_heap(size_t bytes, size_t align) {
  if (align <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  void* p = nullptr;
  return posix_memalign(&p, align, bytes == 0 ? align : bytes) == 0 ? p : nullptr;
}

#if defined(__linux__) && !defined(MOE_SANITIZED)  // the sanitizers only see the heap

// The heap retains large freed blocks. Mapped memory returns to the system at once.
constexpr size_t kMapped = size_t{1} << 20;

void* map_block(size_t bytes, size_t align) {
  const size_t page = page_bytes();
  const size_t more = align > page ? align : 0;
  if (bytes > SIZE_MAX - page - more) return nullptr;
  const size_t whole = round_up(bytes, page);
  void* m = mmap(nullptr, whole + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) return nullptr;
  if (more == 0) return m;
  const auto begin = reinterpret_cast<uintptr_t>(m);
  const uintptr_t at = round_up(begin, uintptr_t{align});
  if (at > begin) (void)munmap(m, at - begin);
  const uintptr_t end = begin + whole + more;
  if (end > at + whole) (void)munmap(reinterpret_cast<void*>(at + whole), end - at - whole);
  return reinterpret_cast<void*>(at);
}

void* system_allocate(void*, size_t bytes, size_t align) {
  return bytes < kMapped ? from_heap(bytes, align) : map_block(bytes, align);
}

void system_deallocate(void*, void* pointer, size_t bytes) {
  if (bytes < kMapped) return std::free(pointer);
  (void)munmap(pointer, round_up(bytes, page_bytes()));
}

#else

void* system_allocate(void*, size_t bytes, size_t align) { return from_heap(bytes, align); }
void system_deallocate(void*, void* pointer, size_t) { std::free(pointer); }

#endif

constexpr Allocator kSystem = {system_allocate, system_deallocate, nullptr};

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

void prefer_large_pages(void* memory, size_t bytes) {
#if defined(__linux__)
  if (bytes < size_t{64} << 10) return;
  // Rounds outwards to whole pages, so that neighbouring allocations form one area and a large page
  // may span their border.
  const uintptr_t page = page_bytes();
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes + page - 1) / page * page;
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)memory;
  (void)bytes;
#endif
}

}  // namespace moe
