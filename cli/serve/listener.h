// SPDX-License-Identifier: MIT
#pragma once
// The socket that clients connect to.

#include <sys/types.h>

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

  int file() const { return file_; }
  /// Connections are refused from now on, and another server can take the address.
  void stop();
  /// Somebody else has closed the file.
  void forget() { file_ = -1; }
  /// "http://127.0.0.1:8080", or "unix:PATH".
  const std::string& url() const { return url_; }
  /// Only programs of this machine can connect.
  bool is_local() const { return local_; }
  /// Clients find it by a name or an address of this machine, as web pages do.
  bool has_local_names() const { return local_ && path_.empty(); }

 private:
  void listen_at(const std::string& host, int port);
  void listen_at(const std::string& path);

  int file_ = -1;
  bool local_ = true;
  std::string url_;
  std::string path_;  // of a socket in the file system, which is removed at the end
  dev_t device_ = 0;  // where it is
  ino_t inode_ = 0;
};

}  // namespace moe_cli
