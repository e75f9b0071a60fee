// SPDX-License-Identifier: MIT
// Routes requests to the service and answers the rest itself.
#include "cli/serve/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "cli/common.h"
#include "cli/serve/metrics.h"

namespace moe_cli {
namespace {

constexpr size_t kHeaderBytes = 32 << 10;  // of a request
constexpr unsigned kThreads = 2;
constexpr size_t kDrain = 16;  // this many times the limit of a body is read before it is refused

using Owner = std::shared_ptr<Exchange>;

const char* header_of(MHD_Connection* connection, const char* name) {
  return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

moe_endpoint endpoint_of(const std::string& url) {
  if (url == "/v1/chat/completions") return MOE_ENDPOINT_CHAT;
  if (url == "/v1/completions") return MOE_ENDPOINT_COMPLETIONS;
  if (url == "/tokenize") return MOE_ENDPOINT_TOKENIZE;
  return moe_endpoint{};
}

bool is_page(const std::string& url) {
  return url == "/v1/models" || url == "/health" || url == "/metrics";
}

// A web page can send other types to another site without asking.
bool is_json(const char* type) {
  return type != nullptr && std::strncmp(type, kJsonType, std::strlen(kJsonType)) == 0;
}

Json error_json(int status, const std::string& text, const char* code) {
  return {{"error",
           {{"message", text},
            {"type", status == 401 ? "authentication_error" : "invalid_request_error"},
            {"param", nullptr},
            {"code", code}}}};
}

// The length that a header gives a body; 0: none, or no number.
size_t length_of(MHD_Connection* connection) {
  const char* text = header_of(connection, "Content-Length");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

}  // namespace

HttpServer::HttpServer(moe_service* service, const std::string& model_name, const ApiKeys& keys,
                       const HttpLimits& limits, ListeningSocket& socket)
    : service_(service),
      model_name_(model_name),
      keys_(keys),
      limits_(limits),
      local_(socket.is_local()),
      watch_(service, std::chrono::seconds(limits.idle_seconds)) {
  const auto connections = static_cast<unsigned>(limits.max_connections);
  const int file = socket.release();
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, nullptr, nullptr, handle, this,
      MHD_OPTION_LISTEN_SOCKET, file, MHD_OPTION_NOTIFY_COMPLETED, completed, this,
      MHD_OPTION_NOTIFY_CONNECTION, connected, this, MHD_OPTION_THREAD_POOL_SIZE, kThreads,
      MHD_OPTION_CONNECTION_LIMIT, std::max(connections, kThreads),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kHeaderBytes, MHD_OPTION_CONNECTION_TIMEOUT,
      static_cast<unsigned>(limits.idle_seconds), MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
  if (daemon_ != nullptr) return;
  close(file);
  throw CallError(MOE_ERR_IO, "libmicrohttpd cannot start");
}

HttpServer::~HttpServer() { MHD_stop_daemon(daemon_); }

void HttpServer::stop_listening() {
  const MHD_socket file = MHD_quiesce_daemon(daemon_);
  if (file != MHD_INVALID_SOCKET) close(file);
}

MHD_Result HttpServer::handle(void* self, MHD_Connection* connection, const char* url,
                              const char* method, const char*, const char* part, size_t* n_bytes,
                              void** state) {
  auto* server = static_cast<HttpServer*>(self);
  try {
    if (*state == nullptr) return server->begin(connection, state);
    const Owner exchange = *static_cast<Owner*>(*state);
    if (*n_bytes > 0) {
      const bool go_on = server->take(*exchange, part, *n_bytes);
      *n_bytes = 0;
      return go_on ? MHD_YES : MHD_NO;
    }
    return server->answer(exchange, connection, url, method);
  } catch (const std::exception&) {  // of memory; nothing may be thrown through libmicrohttpd
    return MHD_NO;
  }
}

MHD_Result HttpServer::begin(MHD_Connection* connection, void** state) {
  watch_.forget(socket_of(connection));
  auto owner = std::make_unique<Owner>(std::make_shared<Exchange>(connection));
  // Two statements of a body's length are how one request is made to look like two.
  const bool ambiguous = header_of(connection, "Content-Length") != nullptr &&
                         header_of(connection, "Transfer-Encoding") != nullptr;
  const size_t length = length_of(connection);
  if (ambiguous || length / kDrain > limits_.max_body) return MHD_NO;
  (*owner)->too_large = length > limits_.max_body;
  *state = owner.release();
  ++n_open_;
  return MHD_YES;
}

// A body that is too large is read and forgotten, so that its sender reads the answer. False: it
// does not end, or comes too slowly.
bool HttpServer::take(Exchange& exchange, const char* part, size_t n_bytes) const {
  const size_t n = exchange.body.size() + n_bytes;
  exchange.too_large = exchange.too_large || n > limits_.max_body;
  exchange.n_received += n_bytes;
  if (exchange.too_large) {
    exchange.body = std::string();
  } else {
    exchange.body.append(part, n_bytes);
  }
  return exchange.n_received / kDrain <= limits_.max_body &&
         SteadyClock::now() - exchange.begun < std::chrono::seconds(limits_.idle_seconds);
}

void HttpServer::connected(void* self, MHD_Connection* connection, void**,
                           MHD_ConnectionNotificationCode what) {
  Watch& watch = static_cast<HttpServer*>(self)->watch_;
  const int socket = socket_of(connection);
  if (what != MHD_CONNECTION_NOTIFY_STARTED) return watch.forget(socket);
  try {
    watch.expect_request(socket);
  } catch (const std::bad_alloc&) {
    shutdown(socket, SHUT_RDWR);
  }
}

void HttpServer::completed(void* self, MHD_Connection* connection, void** state,
                           MHD_RequestTerminationCode) {
  auto* owner = static_cast<Owner*>(*state);
  if (owner == nullptr) return;
  auto* server = static_cast<HttpServer*>(self);
  if ((*owner)->close()) moe_service_cancel(server->service_, (*owner)->ticket.id);
  delete owner;
  *state = nullptr;
  --server->n_open_;
  connected(self, connection, nullptr, MHD_CONNECTION_NOTIFY_STARTED);  // the next request
}

// A web page whose name was made to mean this machine could read answers as its own. Without keys
// only names of this machine are accepted.
bool HttpServer::is_rebound(MHD_Connection* connection) const {
  if (!local_ || keys_.needed()) return false;
  const char* given = header_of(connection, "Host");
  std::string name = given == nullptr ? "" : given;
  if (name.starts_with("[")) return false;  // an IPv6 address
  name = name.substr(0, name.find(':'));
  return name != "localhost" && name.find_first_not_of("0123456789.") != std::string::npos;
}

MHD_Result HttpServer::answer(const Owner& exchange, MHD_Connection* connection,
                              const std::string& url, const std::string& method) {
  Exchange& x = *exchange;
  if (x.submitted) return x.respond();
  if (is_rebound(connection)) return refuse(x, 403, "'Host': not a name of this machine", "host");
  const moe_endpoint endpoint = endpoint_of(url);
  if (endpoint == 0 && !is_page(url)) {
    return refuse(x, 404,
                  "no such endpoint; there are /v1/chat/completions, /v1/completions, /v1/models, "
                  "/tokenize, /health and /metrics",
                  "unknown_url");
  }
  if (url != "/health" && !keys_.allow(header_of(connection, "Authorization"))) {
    return refuse(x, 401, "expected 'Authorization: Bearer' with a key of this server",
                  "invalid_api_key", "WWW-Authenticate", "Bearer");
  }
  const bool right = endpoint == 0 ? method == "GET" || method == "HEAD" : method == "POST";
  if (!right) {
    return refuse(x, 405, endpoint == 0 ? "expected the method GET" : "expected the method POST",
                  "method_not_allowed", "Allow", endpoint == 0 ? "GET, HEAD" : "POST");
  }
  if (endpoint == 0) return get(x, url);
  if (x.too_large) {
    return refuse(
        x, 413,
        "the body: expected at most " + std::to_string(limits_.max_body) + " bytes (--max-body)",
        "body_too_large");
  }
  if (!is_json(header_of(connection, "Content-Type"))) {
    return refuse(x, 415, "expected 'Content-Type: application/json'", "unsupported_media_type");
  }
  x.submit(service_, endpoint);
  if (x.ticket.id != 0) watch_.add(exchange);
  return x.respond();
}

MHD_Result HttpServer::get(Exchange& exchange, const std::string& url) {
  auto stats = MOE_INIT(moe_service_stats);
  moe_error error;
  check(moe_service_get_stats(service_, &stats, &error), error);
  if (url == "/metrics") {
    return exchange.respond(200, metrics_text(stats), "text/plain; version=0.0.4");
  }
  if (url == "/health") {
    const bool draining = stats.draining != 0;
    const Json json = {{"status", draining ? "ending" : "ok"}};
    return exchange.respond(draining ? 503 : 200, json.dump(), kJsonType);
  }
  const Json json = {{"object", "list"},
                     {"data", Json::array({{{"id", model_name_},
                                            {"object", "model"},
                                            {"created", 0},
                                            {"owned_by", "moe"},
                                            {"max_model_len", stats.context}}})}};
  return exchange.respond(200, json.dump(-1, ' ', false, Json::error_handler_t::replace),
                          kJsonType);
}

MHD_Result HttpServer::refuse(Exchange& exchange, int status, const std::string& text,
                              const char* code, const char* header, const char* value) const {
  return exchange.respond(status, error_json(status, text, code).dump(), kJsonType, header, value);
}

}  // namespace moe_cli
