// SPDX-License-Identifier: MIT
// Memory of POSIX: the heap, and mapped pages for large blocks.
#include "src/base/os/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "src/base/checked.h"

namespace moe {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

#if defined(MOE_SANITIZED)  // the sanitizers only see the heap
bool is_mapped(size_t) { return false; }
#else
// The heap retains large freed blocks. Mapped memory returns to the system at once.
bool is_mapped(size_t bytes) { return bytes >= size_t{1} << 20; }
#endif

void* from_heap(size_t bytes, size_t align) {
  if (align <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  void* p = nullptr;
  return posix_memalign(&p, align, bytes == 0 ? align : bytes) == 0 ? p : nullptr;
}

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

// All pages that the memory touches; small memory is not worth a call.
[[maybe_unused]] void advise(void* memory, size_t bytes, int advice) {
  if (bytes < size_t{64} << 10) return;
  const uintptr_t page = page_bytes();
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes + page - 1) / page * page;
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

bool system_has_memory() { return true; }

void* system_allocate(size_t bytes, size_t align) {
  return is_mapped(bytes) ? map_block(bytes, align) : from_heap(bytes, align);
}

void system_deallocate(void* memory, size_t bytes) {
  if (!is_mapped(bytes)) return std::free(memory);
  (void)munmap(memory, round_up(bytes, page_bytes()));
}

void prefer_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(MADV_HUGEPAGE)
  // The first and last page count too, so that neighbouring allocations form one area and a large
  // page may span their border.
  advise(memory, bytes, MADV_HUGEPAGE);
#endif
}

void populate_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(MADV_POPULATE_WRITE)  // kernels before 5.14 refuse it
  advise(memory, bytes, MADV_POPULATE_WRITE);
#endif
}

}  // namespace moe
