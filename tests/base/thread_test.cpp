// SPDX-License-Identifier: MIT
// Threads have the stack that the library asks for, whatever the system gives others.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>

#include "src/base/os/threads.h"
#include "src/base/thread_pool.h"

namespace moe {
namespace {

size_t stack_of_this_thread() {
  pthread_attr_t attributes;
  void* begin = nullptr;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  pthread_attr_getstack(&attributes, &begin, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

/// Gives new threads musl's stack.
class SmallStacks {
 public:
  SmallStacks() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, size_t{128} << 10);
    pthread_setattr_default_np(&small);
    pthread_attr_destroy(&small);
  }
  SmallStacks(const SmallStacks&) = delete;
  SmallStacks& operator=(const SmallStacks&) = delete;
  ~SmallStacks() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST(Thread, HasItsOwnStackSize) {
  SmallStacks small;
  size_t bytes = 0;
  Thread thread;
  ASSERT_TRUE(
      thread.start([](void* out) { *static_cast<size_t*>(out) = stack_of_this_thread(); }, &bytes));
  thread.join();
  EXPECT_GE(bytes, kThreadStackBytes);
  EXPECT_LT(bytes, kThreadStackBytes * 2);
}

TEST(ThreadPool, WorkersHaveTheirOwnStackSize) {
  SmallStacks small;
  ThreadPool pool(system_allocator());
  ASSERT_TRUE(pool.start(2).ok());
  const pthread_t caller = pthread_self();
  std::atomic<size_t> bytes{0};
  while (bytes == 0) {  // until the worker took a part
    pool.parallel([&](int, int) {
      if (pthread_equal(pthread_self(), caller) == 0) bytes = stack_of_this_thread();
    });
  }
  EXPECT_GE(bytes.load(), kThreadStackBytes);
}

}  // namespace
}  // namespace moe
