// SPDX-License-Identifier: MIT
#pragma once
// Connections that are over on this side while the client may still be sending.

#include <chrono>
#include <cstdint>
#include <list>

namespace moe_cli {

/// Closing a connection with bytes that were not read discards the answer on its way. So they are
/// read and forgotten, until the client closes its side, five seconds are over, or it has sent
/// `max_bytes`. One thread at a time.
class Lingering {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMost = 32;  // connections; further ones are closed at once

  explicit Lingering(uint64_t max_bytes) : max_bytes_(max_bytes) {}
  Lingering(const Lingering&) = delete;
  Lingering& operator=(const Lingering&) = delete;
  ~Lingering();

  /// The socket is closed by its owner soon, and its sending half is.
  void add(int socket);
  /// Reads what there is.
  void read();
  /// Calls f with each socket, which can be waited for.
  template <class F>
  void each(F f) const {
    for (const Peer& peer : peers_) f(peer.socket);
  }
  bool empty() const { return peers_.empty(); }

 private:
  struct Peer {
    int socket;
    uint64_t n_left;  // bytes
    Clock::time_point end;
  };
  static bool is_over(Peer& peer);

  const uint64_t max_bytes_;
  std::list<Peer> peers_;
};

}  // namespace moe_cli
