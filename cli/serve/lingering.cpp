// SPDX-License-Identifier: MIT
// Reads and forgets what clients send too late.
#include "cli/serve/lingering.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace moe_cli {
namespace {

constexpr auto kLongest = std::chrono::seconds(5);
constexpr int kReads = 16;  // of one connection, before the others have their turn

}  // namespace

Lingering::~Lingering() {
  each([](int socket) { close(socket); });
}

void Lingering::add(int socket) {
  if (peers_.size() >= kMost) return;
  const int copy = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;
  try {
    peers_.push_back({copy, max_bytes_, Clock::now() + kLongest});
  } catch (const std::bad_alloc&) {
    close(copy);
  }
}

bool Lingering::is_over(Peer& peer) {
  char bytes[16384];
  for (int i = 0; i < kReads; ++i) {
    const ssize_t n = recv(peer.socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0 || static_cast<uint64_t>(n) > peer.n_left) return true;
    peer.n_left -= static_cast<uint64_t>(n);
  }
  return Clock::now() >= peer.end;
}

void Lingering::read() {
  for (auto at = peers_.begin(); at != peers_.end();) {
    const bool over = is_over(*at);
    if (over) close(at->socket);
    at = over ? peers_.erase(at) : std::next(at);
  }
}

}  // namespace moe_cli
