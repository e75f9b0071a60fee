// SPDX-License-Identifier: MIT
// Opens the TCP or unix socket, unless another server answers there.
#include "cli/serve/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace moe_cli {
namespace {

CallError socket_error(const std::string& where, int reason) {
  return {MOE_ERR_IO, where + ": " + std::strerror(reason)};
}

/// An address with a port, of IPv4 or IPv6.
struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  bool loopback = false;
};

Address parse_address(const std::string& text, int port) {
  const std::string host = text == "localhost" ? "127.0.0.1" : text;
  Address address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.bytes);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.bytes);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof *four;
    address.loopback = (ntohl(four->sin_addr.s_addr) >> 24) == 127;
    return address;
  }
  if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof *six;
    address.loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    return address;
  }
  throw UsageError("--host " + text +
                   ": expected an IP address, such as 127.0.0.1, ::1 or 0.0.0.0");
}

int port_of(int file) {
  sockaddr_storage bytes{};
  socklen_t size = sizeof bytes;
  if (getsockname(file, reinterpret_cast<sockaddr*>(&bytes), &size) != 0) return 0;
  return ntohs(bytes.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bytes)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bytes)->sin_port);
}

// True if no program answers at the socket that an earlier run has left.
bool is_left_over(const sockaddr_un& address) {
  struct stat there {};
  if (lstat(address.sun_path, &there) != 0 || !S_ISSOCK(there.st_mode)) return false;
  const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool refused =
      file >= 0 &&
      connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  if (file >= 0) close(file);
  return refused;
}

}  // namespace

ListeningSocket::ListeningSocket(const ServeOptions& o) {
  if (o.unix_path.empty()) {
    listen_at(o.host, o.port);
  } else {
    listen_at(o.unix_path);
  }
}

ListeningSocket::~ListeningSocket() {
  stop();
  if (file_ >= 0) close(file_);
}

// The file stays open: no other socket gets its inode, and libmicrohttpd may still look at it.
void ListeningSocket::stop() {
  struct stat there {};
  if (!path_.empty() && lstat(path_.c_str(), &there) == 0 && there.st_dev == device_ &&
      there.st_ino == inode_) {
    unlink(path_.c_str());
  }
  if (file_ >= 0) shutdown(file_, SHUT_RDWR);
}

void ListeningSocket::listen_at(const std::string& host, int port) {
  const Address address = parse_address(host, port);
  local_ = address.loopback;
  const bool six = address.bytes.ss_family == AF_INET6;
  const std::string where = six ? "[" + host + "]" : host;
  file_ = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (file_ < 0 || setsockopt(file_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(file_, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0 ||
      listen(file_, SOMAXCONN) != 0) {
    throw socket_error("--host " + host + " --port " + std::to_string(port), errno);
  }
  url_ = "http://" + where + ":" + std::to_string(port_of(file_));
}

void ListeningSocket::listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw UsageError("--unix " + path + ": expected at most " +
                     std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (is_left_over(address)) unlink(path.c_str());
  file_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const mode_t before = umask(0177);  // for this user alone
  const bool bound =
      file_ >= 0 && bind(file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int reason = errno;
  umask(before);
  if (!bound) throw socket_error("--unix " + path, reason);
  path_ = path;
  struct stat there {};
  if (lstat(path.c_str(), &there) != 0) throw socket_error("--unix " + path, errno);
  device_ = there.st_dev;
  inode_ = there.st_ino;
  if (listen(file_, SOMAXCONN) != 0) throw socket_error("--unix " + path, errno);
  url_ = "unix:" + path;
}

}  // namespace moe_cli
