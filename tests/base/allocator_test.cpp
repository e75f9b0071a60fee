// SPDX-License-Identifier: MIT
#include "src/base/allocator.h"

#include <gtest/gtest.h>

#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace moe {
namespace {

TEST(SystemAllocator, AlignsSmallAndLargeBlocks) {
  const Allocator& a = system_allocator();
  for (const size_t bytes :
       {size_t{0}, size_t{100}, (size_t{1} << 20) - 1, size_t{1} << 20, (size_t{3} << 20) + 5}) {
    for (const size_t align : {size_t{8}, size_t{64}, size_t{4096}, size_t{1} << 21}) {
      void* p = allocate(a, bytes, align);
      ASSERT_NE(p, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % align, 0u);
      std::memset(p, 7, bytes);
      deallocate(a, p, bytes);
    }
  }
  EXPECT_EQ(allocate(a, SIZE_MAX, 64), nullptr);
  EXPECT_EQ(allocate(a, SIZE_MAX - 4096, 4096), nullptr);
}

#if defined(__linux__) && !defined(MOE_SANITIZED)
TEST(SystemAllocator, LargeBlocksGoBackToTheSystem) {
  const Allocator& a = system_allocator();
  constexpr size_t kBytes = size_t{4} << 20;
  void* blocks[3];
  for (void*& block : blocks) {
    block = allocate(a, kBytes, 4096);
    ASSERT_NE(block, nullptr);
    std::memset(block, 1, kBytes);
  }
  unsigned char pages[kBytes / 4096];
  EXPECT_EQ(mincore(blocks[1], kBytes, pages), 0);
  deallocate(a, blocks[1], kBytes);
  EXPECT_NE(mincore(blocks[1], kBytes, pages), 0);  // with blocks in use on both sides
  deallocate(a, blocks[0], kBytes);
  deallocate(a, blocks[2], kBytes);
}
#endif

}  // namespace
}  // namespace moe
