// SPDX-License-Identifier: MIT
#include "src/base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace moe {
namespace {

struct Wait {
  Mutex mutex;
  Condition condition;
  std::atomic<bool> stop{false};
  bool waits = false;  // guarded by `mutex`
  std::atomic<bool> ended{false};
  std::thread thread{[this] {
    LockGuard guard(mutex);
    waits = true;
    condition.wait_unless(mutex, &stop);
    ended = true;
  }};

  ~Wait() {
    stop = true;
    thread.join();
  }
  void lock_while_it_waits() {
    for (;;) {
      mutex.lock();
      if (waits) return;
      mutex.unlock();
      std::this_thread::yield();
    }
  }
  bool ends() const {
    for (int i = 0; i < 2000 && !ended; ++i) pause(5);
    return ended;
  }
  static void pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
};

TEST(WaitUnless, EndsWhenNotified) {
  Wait wait;
  wait.lock_while_it_waits();
  wait.condition.notify_all();
  wait.mutex.unlock();
  EXPECT_TRUE(wait.ends());
}

// After the pause the thread has checked `stop` and is waiting for the mutex, not for the
// condition.
TEST(WaitUnless, NoticesANotificationBeforeItWaits) {
  Wait wait;
  wait.lock_while_it_waits();
  Wait::pause(50);
  wait.condition.notify_all();
  wait.mutex.unlock();
  EXPECT_TRUE(wait.ends());
}

TEST(WaitUnless, EndsWhenStopped) {
  Wait wait;
  wait.lock_while_it_waits();
  wait.mutex.unlock();
  Wait::pause(20);
  EXPECT_FALSE(wait.ended);
  wait.stop = true;
  EXPECT_TRUE(wait.ends());
}

}  // namespace
}  // namespace moe
