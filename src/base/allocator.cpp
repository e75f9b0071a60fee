#include "src/base/allocator.h"

#include <cstdint>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace moe {
namespace {

void* system_allocate(void*, size_t bytes, size_t align) {
  if (align <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  void* p = nullptr;
  return posix_memalign(&p, align, bytes == 0 ? align : bytes) == 0 ? p : nullptr;
}

void system_deallocate(void*, void* pointer, size_t) { std::free(pointer); }

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
  // Outwards to whole pages: so neighbouring allocations form one area, in which a large page may
  // lie across their border.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes + page - 1) / page * page;
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)memory;
  (void)bytes;
#endif
}

}  // namespace moe
