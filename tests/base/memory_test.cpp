// SPDX-License-Identifier: MIT
// Memory of the system, and hints about it.
#include "src/base/os/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace moe {
namespace {

TEST(Memory, IsAlignedAndHintsLeaveWhatIsInIt) {
  for (const size_t align : {size_t{8}, size_t{64}, size_t{1} << 16}) {
    for (const size_t bytes :
         {size_t{0}, size_t{1}, size_t{100} << 10, (size_t{1} << 20) + 3, size_t{5} << 20}) {
      void* const memory = system_allocate(bytes, align);
      ASSERT_NE(memory, nullptr) << bytes;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % align, 0U) << bytes;
      auto* const text = static_cast<uint8_t*>(memory);
      for (size_t i = 0; i < bytes; i += 1000) text[i] = static_cast<uint8_t>(i / 1000 + 1);
      prefer_large_pages(memory, bytes);
      populate_pages(memory, bytes);
      for (size_t i = 0; i < bytes; i += 1000) {
        ASSERT_EQ(text[i], static_cast<uint8_t>(i / 1000 + 1)) << bytes << " at " << i;
      }
      system_deallocate(memory, bytes);
    }
  }
}

#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
// The number of pages that the system has provided, of `n` from `memory` on.
int64_t present(void* memory, size_t n, size_t page) {
  std::vector<unsigned char> pages(n);
  if (mincore(memory, n * page, pages.data()) != 0) return -1;
  return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
}

TEST(Memory, PagesArePopulated) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t n = (size_t{4} << 20) / page;
  void* const memory =
      mmap(nullptr, n * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  // A kernel before 5.14 refuses the advice, and an emulator may accept it and do nothing.
  if (madvise(memory, page, MADV_POPULATE_WRITE) != 0 || present(memory, 1, page) != 1) {
    (void)munmap(memory, n * page);
    GTEST_SKIP() << "the system cannot populate pages";
  }
  const int64_t before = present(memory, n, page);
  EXPECT_LT(before, static_cast<int64_t>(n));
  populate_pages(memory, n * page);
  EXPECT_EQ(present(memory, n, page), static_cast<int64_t>(n));
  (void)munmap(memory, n * page);
}
#endif

}  // namespace
}  // namespace moe
