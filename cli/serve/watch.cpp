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
constexpr auto kLook = std::chrono::milliseconds(5000);  // between looks at streams

}  // namespace

Watch::Watch(moe_service* service, SteadyClock::duration patience)
    : service_(service), patience_(patience) {
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

void Watch::expect_request(int socket) {
  {
    const std::lock_guard lock(mutex_);
    expected_[socket] = SteadyClock::now();
  }
  wake();
}

void Watch::forget(int socket) {
  const std::lock_guard lock(mutex_);
  expected_.erase(socket);
}

void Watch::cancel_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& exchange : exchanges_) moe_service_cancel(service_, exchange->ticket.id);
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
  if (exchanges_.empty() && expected_.empty()) return -1;
  Milliseconds time = exchanges_.empty() ? Milliseconds::max() : kLook;
  for (const auto& [socket, since] : expected_) {
    const auto left =
        std::chrono::duration_cast<Milliseconds>(since + patience_ - SteadyClock::now());
    time = std::clamp(left + Milliseconds(1), Milliseconds(0), time);
  }
  return static_cast<int>(std::min<int64_t>(time.count(), INT32_MAX));
}

// libmicrohttpd sees the end, and closes the socket.
void Watch::close_slow() {
  const SteadyClock::time_point now = SteadyClock::now();
  for (auto at = expected_.begin(); at != expected_.end();) {
    const bool slow = now - at->second >= patience_;
    if (slow) shutdown(at->first, SHUT_RDWR);
    at = slow ? expected_.erase(at) : std::next(at);
  }
}

// Until a client goes away, there is another request, or streams are looked at.
void Watch::wait() {
  std::vector<std::shared_ptr<Exchange>> watched;
  std::vector<pollfd> files = {{wake_[0], POLLIN, 0}};
  int time = 0;
  {
    const std::lock_guard lock(mutex_);
    close_slow();
    exchanges_.remove_if([](const auto& e) { return !e->ping(kSilence); });
    for (const auto& exchange : exchanges_) {
      if (exchange->asked_to_cancel) continue;
      watched.push_back(exchange);
      files.push_back({exchange->socket(), POLLRDHUP, 0});
    }
    time = time_to_look();
  }
  if (poll(files.data(), files.size(), time) <= 0) return;
  for (char bytes[64]; read(wake_[0], bytes, sizeof bytes) > 0;) {
  }
  for (size_t i = 0; i < watched.size(); ++i) {
    // The number of a socket that was closed meanwhile may be that of another.
    const bool gone = files[i + 1].revents != 0 && watched[i]->socket() == files[i + 1].fd;
    if (!gone) continue;
    watched[i]->asked_to_cancel = true;
    moe_service_cancel(service_, watched[i]->ticket.id);
  }
}

}  // namespace moe_cli
