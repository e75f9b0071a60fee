// SPDX-License-Identifier: MIT
// The bytes of a connection, read by libmicrohttpd and by the checks of heads. A head that the
// checks accept ends its request in one place alone: it has a length or chunks, once, and headers
// that no other program reads as these.

#include <microhttpd.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "cli/serve/named_model.h"
#include "cli/serve/request_head.h"
#include "tests/support/fuzz_bytes.h"

namespace moe_cli {
namespace {

using moe::require;

struct Counts {
  int lengths = 0;
  int codings = 0;
  int hosts = 0;
};

MHD_Result count(void* user, MHD_ValueKind, const char* name, size_t n_name, const char* value,
                 size_t n_value) {
  auto& counts = *static_cast<Counts*>(user);
  const std::string key(name, n_name);
  const std::string_view text(value == nullptr ? "" : value, value == nullptr ? 0 : n_value);
  require(key.find_first_of(" \t\r\n:") == std::string::npos);
  require(text.find_first_of("\r\n") == std::string_view::npos);
  const auto is = [&](const char* other) { return strcasecmp(key.c_str(), other) == 0; };
  counts.lengths += is("Content-Length") ? 1 : 0;
  counts.codings += is("Transfer-Encoding") ? 1 : 0;
  counts.hosts += is("Host") ? 1 : 0;
  if (is("Transfer-Encoding")) require(strcasecmp(std::string(text).c_str(), "chunked") == 0);
  return MHD_YES;
}

void check_accepted(MHD_Connection* connection, std::string_view version) {
  Counts counts;
  MHD_get_connection_values_n(connection, MHD_HEADER_KIND, count, &counts);
  require(counts.lengths + counts.codings <= 1);
  require(counts.hosts == 1 || (version == "HTTP/1.0" && counts.hosts == 0));
  const char* host = header_of(connection, "Host");
  if (host != nullptr && names_a_machine(host)) {
    require(std::string_view(host).find_first_not_of(
                "0123456789abcdefABCDEFlocalhstLOCALHST.:[]%") == std::string_view::npos);
  }
  (void)is_json(header_of(connection, "Content-Type"));
  if (has_body(connection) && counts.codings == 0) require(declared_length(connection) > 0);
}

struct Request {
  std::string body;
  bool refused = false;
};

MHD_Result handle(void*, MHD_Connection* connection, const char*, const char*, const char* version,
                  const char* part, size_t* n_bytes, void** state) {
  if (*state == nullptr) {
    auto* request = new Request;
    *state = request;
    request->refused = check_framing(connection, version).has_value();
    if (request->refused) return MHD_NO;
    check_accepted(connection, version);
    return MHD_YES;
  }
  auto* request = static_cast<Request*>(*state);
  if (*n_bytes > 0) {
    request->body.append(part, *n_bytes);
    *n_bytes = 0;
    return MHD_YES;
  }
  (void)named_model(request->body);
  MHD_Response* response = MHD_create_response_from_buffer(0, nullptr, MHD_RESPMEM_PERSISTENT);
  const MHD_Result queued = MHD_queue_response(connection, 200, response);
  MHD_destroy_response(response);
  return queued;
}

void completed(void*, MHD_Connection*, void** state, MHD_RequestTerminationCode) {
  delete static_cast<Request*>(*state);
  *state = nullptr;
}

size_t keep_escapes(void*, MHD_Connection*, char* text) { return std::string_view(text).size(); }

void quiet(void*, const char*, va_list) {}

// Whatever is sent back is read, so that nothing waits.
void run(MHD_Daemon* daemon, int client) {
  char bytes[4096];
  for (int i = 0; i < 200; ++i) {
    MHD_run(daemon);
    const ssize_t n = recv(client, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0) return;
  }
}

}  // namespace
}  // namespace moe_cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 16384) return 0;
  MHD_Daemon* daemon = MHD_start_daemon(MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr,
                                        moe_cli::handle, nullptr, MHD_OPTION_NOTIFY_COMPLETED,
                                        moe_cli::completed, nullptr, MHD_OPTION_EXTERNAL_LOGGER,
                                        moe_cli::quiet, nullptr, MHD_OPTION_UNESCAPE_CALLBACK,
                                        moe_cli::keep_escapes, nullptr, MHD_OPTION_END);
  int sockets[2] = {-1, -1};
  const bool made = daemon != nullptr && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0;
  moe::require(made);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  moe::require(MHD_add_connection(daemon, sockets[0], reinterpret_cast<sockaddr*>(&address),
                                  sizeof address) == MHD_YES);
  (void)!send(sockets[1], data, size, MSG_NOSIGNAL);
  shutdown(sockets[1], SHUT_WR);
  moe_cli::run(daemon, sockets[1]);
  MHD_stop_daemon(daemon);
  close(sockets[1]);
  return 0;
}
