// SPDX-License-Identifier: MIT
// Looks for clients that went away and for requests that take too long.
#include "cli/serve/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "cli/common.h"

namespace moe_cli {
namespace {

constexpr auto kSilence = std::chrono::seconds(15);
constexpr auto kLook = std::chrono::milliseconds(5000);       // between looks at streams
constexpr auto kShortLook = std::chrono::milliseconds(1000);  // at lingering connections
constexpr auto kGone = std::chrono::seconds(1);

}  // namespace

Watch::Watch(SteadyClock::duration patience, uint64_t max_bytes)
    : patience_(patience), lingering_(max_bytes) {
  if (pipe2(wake_, O_NONBLOCK | O_CLOEXEC) != 0) {
    throw CallError(MOE_ERR_IO, std::string("pipe: ") + std::strerror(errno));
  }
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  stop_ = true;
  wake();
  thread_.join();
  close(wake_[0]);
  close(wake_[1]);
}

void Watch::wake() {
  if (write(wake_[1], "", 1) < 0) {  // full: it wakes the thread anyway
  }
}

void Watch::add(const std::shared_ptr<Exchange>& exchange) {
  {
    const std::lock_guard lock(mutex_);
    exchanges_.push_back(exchange);
  }
  wake();
}

void Watch::expect(int socket) {
  {
    const std::lock_guard lock(mutex_);
    expected_[socket] = {.end = SteadyClock::now() + patience_};
  }
  wake();
}

void Watch::forget(int socket) {
  const std::lock_guard lock(mutex_);
  expected_.erase(socket);
}

void Watch::linger(int socket) {
  {
    const std::lock_guard lock(mutex_);
    lingering_.add(socket);
  }
  wake();
}

void Watch::cancel_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& exchange : exchanges_) exchange->cancel();
}

void Watch::run() {
  while (!stop_) {
    try {
      wait();
    } catch (const std::bad_alloc&) {  // later there may be memory
      poll(nullptr, 0, 100);
    }
  }
}

// Milliseconds; -1: any time.
int Watch::time_to_look() const {
  using Milliseconds = std::chrono::milliseconds;
  if (exchanges_.empty() && expected_.empty() && lingering_.empty()) return -1;
  Milliseconds time = exchanges_.empty() ? Milliseconds::max() : kLook;
  if (!lingering_.empty()) time = kShortLook;
  for (const auto& [socket, expected] : expected_) {
    const auto left = std::chrono::duration_cast<Milliseconds>(expected.end - SteadyClock::now());
    time = std::clamp(left + Milliseconds(1), Milliseconds(0), time);
  }
  return static_cast<int>(std::min<int64_t>(time.count(), INT32_MAX));
}

// libmicrohttpd sees the end, and closes the socket.
void Watch::close_slow() {
  const SteadyClock::time_point now = SteadyClock::now();
  for (auto at = expected_.begin(); at != expected_.end();) {
    const bool slow = now >= at->second.end;
    if (slow) shutdown(at->first, SHUT_RDWR);
    at = slow ? expected_.erase(at) : std::next(at);
  }
}

// The number of a socket that was closed meanwhile may be that of another.
void Watch::cancel_if_gone(Exchange& exchange, int socket) {
  if (exchange.socket() != socket) return;
  exchange.asked_to_cancel = true;
  exchange.cancel();
}

void Watch::hurry(int socket, SteadyClock::time_point end) {
  const std::lock_guard lock(mutex_);
  const auto at = expected_.find(socket);
  if (at == expected_.end() || at->second.end != end) return;
  at->second = {.end = std::min(end, SteadyClock::now() + kGone), .gone = true};
}

// Until a client goes away, there is another request, or streams are looked at.
void Watch::wait() {
  std::vector<std::shared_ptr<Exchange>> watched;
  std::vector<SteadyClock::time_point> ends;  // of those expected
  std::vector<pollfd> files = {{wake_[0], POLLIN, 0}};
  int time = 0;
  {
    const std::lock_guard lock(mutex_);
    close_slow();
    lingering_.read();
    exchanges_.remove_if([](const auto& e) { return !e->ping(kSilence); });
    for (const auto& exchange : exchanges_) {
      if (exchange->asked_to_cancel) continue;
      watched.push_back(exchange);
      files.push_back({exchange->socket(), POLLRDHUP, 0});
    }
    for (const auto& [socket, expected] : expected_) {
      if (expected.gone) continue;
      ends.push_back(expected.end);
      files.push_back({socket, POLLRDHUP, 0});
    }
    lingering_.each([&](int socket) { files.push_back({socket, POLLIN | POLLRDHUP, 0}); });
    time = time_to_look();
  }
  if (poll(files.data(), files.size(), time) <= 0) return;
  for (char bytes[64]; read(wake_[0], bytes, sizeof bytes) > 0;) {
  }
  const pollfd* file = &files[1];
  for (const auto& exchange : watched) {
    if (file->revents != 0) cancel_if_gone(*exchange, file->fd);
    ++file;
  }
  for (const SteadyClock::time_point end : ends) {
    if (file->revents != 0) hurry(file->fd, end);
    ++file;
  }
}

}  // namespace moe_cli
