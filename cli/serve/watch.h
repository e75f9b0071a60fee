// SPDX-License-Identifier: MIT
#pragma once
// A thread that looks after connections where libmicrohttpd does not: it does not see that the
// clients of suspended ones, or of those whose request is incomplete, have gone away, nor that a
// request comes byte by byte, and it closes connections that still receive something.

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/serve/exchange.h"
#include "cli/serve/lingering.h"

namespace moe_cli {

/// Cancels requests of clients that have closed their connection, and keeps streams alive with a
/// comment where nothing has been sent for 15 seconds. Closes connections whose client goes away in
/// the middle of a request, or takes longer than `patience` for one. Without connections it sleeps.
class Watch {
 public:
  /// See Lingering for max_bytes.
  Watch(SteadyClock::duration patience, uint64_t max_bytes);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  /// A connection waits for a request, or its body, from now on, or no longer. Any thread.
  void expect(int socket);
  void forget(int socket);
  /// The socket will be closed, after what its client is still sending. Any thread.
  void linger(int socket);
  /// Cancels all that are there. Any thread.
  void cancel_all();
  /// From now on until its answer is there. Any thread.
  void add(const std::shared_ptr<Exchange>& exchange);

 private:
  struct Expected {
    SteadyClock::time_point end;
    bool gone = false;  // the client, which then has a second until the rest is read
  };

  void run();
  void wait();
  int time_to_look() const;
  void close_slow();
  void cancel_if_gone(Exchange& exchange, int socket);
  void hurry(int socket, SteadyClock::time_point end);
  void wake();

  const SteadyClock::duration patience_;
  int wake_[2] = {-1, -1};  // a pipe
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  // Guarded by it:
  std::list<std::shared_ptr<Exchange>> exchanges_;
  std::map<int, Expected> expected_;  // by socket
  Lingering lingering_;
  std::thread thread_;
};

}  // namespace moe_cli
