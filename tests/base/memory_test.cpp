// SPDX-License-Identifier: MIT
// Memory of the system, and hints about it.
#include "src/base/os/memory.h"

#include <gtest/gtest.h>

#include <cstdint>

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

}  // namespace
}  // namespace moe
