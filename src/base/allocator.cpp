#include "src/base/allocator.h"

#include <cstdlib>

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

}  // namespace moe
