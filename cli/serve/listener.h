// SPDX-License-Identifier: MIT
#pragma once
// The socket that clients connect to.

#include <string>

#include "cli/serve/serve_options.h"

namespace moe_cli {

class ListeningSocket {
 public:
  /// Throws UsageError for an address that is none, CallError if it cannot be used.
  explicit ListeningSocket(const ServeOptions& o);
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  ~ListeningSocket();

  /// Who closes it from now on is the caller.
  int release();
  /// "http://127.0.0.1:8080", or "unix:PATH".
  const std::string& url() const { return url_; }
  /// Only programs of this machine can connect.
  bool is_local() const { return local_; }

 private:
  void listen_at(const std::string& host, int port);
  void listen_at(const std::string& path);

  int file_ = -1;
  bool local_ = true;
  std::string url_;
  std::string path_;  // of a socket in the file system, which is removed at the end
};

}  // namespace moe_cli
