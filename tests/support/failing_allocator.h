// SPDX-License-Identifier: MIT
#pragma once
// An allocator that counts live allocations and can fail any one of them, to test every
// out-of-memory path.

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "src/base/allocator.h"
#include "src/base/status.h"

namespace moe {

class FailingAllocator {
 public:
  static constexpr size_t kNever = ~size_t{0};

  /// Fails allocation number `fail_at` (from 0) and, if `and_after`, all that follow.
  explicit FailingAllocator(size_t fail_at = kNever, bool and_after = false)
      : fail_at_(fail_at), and_after_(and_after) {}
  FailingAllocator(const FailingAllocator&) = delete;
  FailingAllocator& operator=(const FailingAllocator&) = delete;
  ~FailingAllocator() {
    EXPECT_EQ(live_blocks(), 0u) << "leaked " << live_bytes() << " bytes";
    for (const auto& [pointer, bytes] : live_) std::free(pointer);
  }

  /// Valid during this object's life. moe_allocator of the C API has the same callbacks.
  const Allocator& get() const { return allocator_; }

  /// Makes the n-th allocation from now on fail.
  void fail_in(size_t n) {
    const std::lock_guard<std::mutex> guard(mutex_);
    fail_at_ = n == kNever ? kNever : n_allocations_ + n;
  }

  size_t n_allocations() const { return read(n_allocations_); }
  size_t live_blocks() const { return read(live_blocks_); }
  size_t live_bytes() const { return read(live_bytes_); }
  size_t peak_bytes() const { return read(peak_bytes_); }
  void reset_peak() {
    const std::lock_guard<std::mutex> guard(mutex_);
    peak_bytes_ = live_bytes_;
  }
  /// True if the failing allocation was reached.
  bool failed() const { return read(n_failed_) != 0; }

 private:
  size_t read(const size_t& number) const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return number;
  }

  static void* allocate(void* user, size_t bytes, size_t align) {
    auto* self = static_cast<FailingAllocator*>(user);
    const std::lock_guard<std::mutex> guard(self->mutex_);
    const size_t number = self->n_allocations_++;
    if (number == self->fail_at_ || (self->and_after_ && number > self->fail_at_)) {
      ++self->n_failed_;
      return nullptr;
    }
    void* pointer = nullptr;
    if (posix_memalign(&pointer, align < sizeof(void*) ? sizeof(void*) : align, bytes + 1) != 0) {
      return nullptr;
    }
    self->live_[pointer] = bytes;
    ++self->live_blocks_;
    self->live_bytes_ += bytes;
    if (self->live_bytes_ > self->peak_bytes_) self->peak_bytes_ = self->live_bytes_;
    return pointer;
  }

  static void deallocate(void* user, void* pointer, size_t bytes) {
    auto* self = static_cast<FailingAllocator*>(user);
    const std::lock_guard<std::mutex> guard(self->mutex_);
    const auto block = self->live_.find(pointer);
    ASSERT_NE(block, self->live_.end()) << "freed twice, or not from here";
    EXPECT_EQ(block->second, bytes) << "freed with another size than it was allocated with";
    --self->live_blocks_;
    self->live_bytes_ -= block->second;
    self->live_.erase(block);
    std::free(pointer);
  }

  size_t fail_at_;
  bool and_after_;
  Allocator allocator_{allocate, deallocate, this};
  mutable std::mutex mutex_;
  std::map<void*, size_t> live_;
  size_t n_allocations_ = 0;
  size_t n_failed_ = 0;
  size_t live_blocks_ = 0;
  size_t live_bytes_ = 0;
  size_t peak_bytes_ = 0;
};

/// Calls `f(const Allocator&)`, which returns a moe_status and frees everything it creates, with
/// allocation 0 failing, then 1, and so on until f succeeds unaffected. Each failure must be
/// MOE_ERR_MEMORY (an f that works without the memory may return MOE_OK), and nothing may leak.
/// Returns the number of failures tried.
template <class F>
size_t try_every_allocation_failure(F f) {
  constexpr size_t kMost = 100000;
  for (size_t n = 0; n < kMost; ++n) {
    FailingAllocator memory(n);
    const moe_status status = f(memory.get());
    if (!memory.failed()) {
      EXPECT_EQ(status, MOE_OK) << "with enough memory";
      return n;
    }
    EXPECT_TRUE(status == MOE_ERR_MEMORY || status == MOE_OK)
        << "allocation " << n << " failed, status " << status;
    EXPECT_EQ(memory.live_blocks(), 0u) << "after the failure of allocation " << n;
    if (::testing::Test::HasFailure()) return n;
  }
  ADD_FAILURE() << "still not done after " << kMost << " allocations";
  return kMost;
}

}  // namespace moe
