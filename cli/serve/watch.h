// SPDX-License-Identifier: MIT
#pragma once
// A thread that looks after connections where libmicrohttpd does not: it does not see that the
// clients of suspended ones have gone away, nor that a request comes byte by byte.

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/serve/exchange.h"

namespace moe_cli {

/// Cancels requests of clients that have closed their connection, and keeps streams alive with a
/// comment where nothing has been sent for 15 seconds. Closes connections whose next request takes
/// longer than `patience` to begin. Without connections it sleeps.
class Watch {
 public:
  Watch(moe_service* service, SteadyClock::duration patience);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  /// A connection waits for a request from now on, or no longer. Any thread.
  void expect_request(int socket);
  void forget(int socket);
  /// Cancels all that are there. Any thread.
  void cancel_all();
  /// From now on until its answer is there. Any thread.
  void add(const std::shared_ptr<Exchange>& exchange);

 private:
  void run();
  void wait();
  int time_to_look() const;
  void close_slow();
  void wake();

  moe_service* const service_;
  const SteadyClock::duration patience_;
  int wake_[2] = {-1, -1};  // a pipe
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  // Guarded by it:
  std::list<std::shared_ptr<Exchange>> exchanges_;
  std::map<int, SteadyClock::time_point> expected_;  // sockets, and since when
  std::thread thread_;
};

}  // namespace moe_cli
