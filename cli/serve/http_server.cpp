// SPDX-License-Identifier: MIT
// Routes requests to the service and answers the rest itself.
#include "cli/serve/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "cli/common.h"
#include "cli/serve/api_error.h"
#include "cli/serve/endpoints.h"
#include "cli/serve/metrics.h"
#include "cli/serve/named_model.h"
#include "cli/serve/open_service.h"
#include "cli/serve/page_files.h"

namespace moe_cli {
namespace {

constexpr size_t kHeaderBytes = 32 << 10;  // of a request
constexpr unsigned kThreads = 2;
constexpr size_t kDrain = 16;  // this many times the limit of a body is read before it is refused

using Owner = std::shared_ptr<Exchange>;

constexpr std::string_view kModels = "/v1/models";

// The page is that of one model, whose name follows.
bool is_model(const std::string& url) { return url.starts_with("/v1/models/"); }

// Names may have any characters, which clients escape in a path.
std::string without_escapes(std::string text) {
  text.resize(MHD_http_unescape(text.data()));
  return text;
}

std::string model_in(const std::string& url) {
  return without_escapes(url.substr(std::string_view("/v1/models/").size()));
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string statistics_of(moe_service* service) {
  std::string text;
  moe_error error;
  check(moe_service_submit(
            service, MOE_ENDPOINT_STATISTICS, nullptr, 0,
            [](void* user, const moe_service_event* event) {
              static_cast<std::string*>(user)->assign(event->json, event->n_bytes);
            },
            &text, nullptr, &error),
        error);
  return text;
}

bool is_page(const std::string& url) {
  return page_file(url) != nullptr || url == kModels || is_model(url) || url == "/health" ||
         url == "/metrics" || url == "/statistics";
}

MHD_Result refuse(Exchange& exchange, const std::string& url, const Refusal& r) {
  return exchange.respond(r.status, error_text(is_anthropic(url), r.status, r.text, r.code),
                          kJsonType, r.header, r.value);
}

// The paths of this server need no escapes, and "%00" would end one.
size_t keep_escapes(void*, MHD_Connection*, char* text) { return std::strlen(text); }

}  // namespace

HttpServer::HttpServer(ServedModels& models, const ApiKeys& keys, const HttpLimits& limits,
                       ListeningSocket& socket)
    : models_(models),
      keys_(keys),
      limits_(limits),
      socket_(socket),
      watch_(std::chrono::seconds(limits.idle_seconds),
             kDrain * std::min(limits.max_body, SIZE_MAX / kDrain)) {
  const auto connections = static_cast<unsigned>(limits.max_connections);
  // Not epoll: MHD_quiesce_daemon of 0.9.75 then takes the socket out of the sets of its threads,
  // and aborts the process if one of them was faster.
  daemon_ = MHD_start_daemon(
      MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, nullptr, nullptr, handle, this,
      MHD_OPTION_LISTEN_SOCKET, socket.file(), MHD_OPTION_NOTIFY_COMPLETED, completed, this,
      MHD_OPTION_NOTIFY_CONNECTION, connected, this, MHD_OPTION_THREAD_POOL_SIZE, kThreads,
      MHD_OPTION_CONNECTION_LIMIT, std::max(connections, kThreads),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kHeaderBytes, MHD_OPTION_CONNECTION_TIMEOUT,
      static_cast<unsigned>(limits.idle_seconds), MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes,
      nullptr, MHD_OPTION_END);
  if (daemon_ != nullptr) return;
  socket.forget();  // libmicrohttpd closes it
  throw CallError(MOE_ERR_IO, "libmicrohttpd cannot start");
}

HttpServer::~HttpServer() {
  stop_listening();
  MHD_stop_daemon(daemon_);
}

void HttpServer::stop_listening() {
  if (ending_.exchange(true)) return;
  MHD_quiesce_daemon(daemon_);
  socket_.stop();
}

MHD_Result HttpServer::handle(void* self, MHD_Connection* connection, const char* url,
                              const char* method, const char* version, const char* part,
                              size_t* n_bytes, void** state) {
  auto* server = static_cast<HttpServer*>(self);
  try {
    if (*state == nullptr) {
      return server->begin(connection, url, method, version, state);
    }
    const Owner exchange = *static_cast<Owner*>(*state);
    if (*n_bytes > 0) {
      const bool go_on = server->take(*exchange, part, *n_bytes);
      *n_bytes = 0;
      return go_on ? MHD_YES : MHD_NO;
    }
    exchange->last_of_connection = server->ending_;
    return server->answer(exchange, connection, url, method);
  } catch (const std::exception&) {  // of memory; nothing may be thrown through libmicrohttpd
    return MHD_NO;
  }
}

// A request that will be refused is answered before its body is read, which closes the connection;
// without a body, the connection stays.
MHD_Result HttpServer::begin(MHD_Connection* connection, const std::string& url,
                             const std::string& method, const std::string& version, void** state) {
  auto owner = std::make_unique<Owner>(std::make_shared<Exchange>(connection));
  std::optional<Refusal> refusal = check_framing(connection, version);
  const bool body = has_body(connection);
  if (!refusal && body) refusal = check_head(connection, url, method);
  if (body && !refusal) {
    watch_.expect(socket_of(connection));
  } else {
    watch_.forget(socket_of(connection));
  }
  Exchange& exchange = **owner;
  *state = owner.release();
  ++n_open_;
  return refusal ? refuse(exchange, url, *refusal) : MHD_YES;
}

// A body in chunks that is too large is read and forgotten, so that its sender reads the answer.
// False: it does not end.
bool HttpServer::take(Exchange& exchange, const char* part, size_t n_bytes) const {
  exchange.n_received += n_bytes;
  exchange.too_large = exchange.n_received > limits_.max_body;
  if (exchange.too_large) {
    exchange.body = std::string();
  } else {
    exchange.body.append(part, n_bytes);
  }
  return exchange.n_received / kDrain <= limits_.max_body;
}

void HttpServer::connected(void* self, MHD_Connection* connection, void**,
                           MHD_ConnectionNotificationCode what) {
  Watch& watch = static_cast<HttpServer*>(self)->watch_;
  const int socket = socket_of(connection);
  if (what != MHD_CONNECTION_NOTIFY_STARTED) {
    watch.forget(socket);
    watch.linger(socket);
    return;
  }
  try {
    watch.expect(socket);
  } catch (const std::bad_alloc&) {
    shutdown(socket, SHUT_RDWR);
  }
}

void HttpServer::completed(void* self, MHD_Connection* connection, void** state,
                           MHD_RequestTerminationCode) {
  auto* owner = static_cast<Owner*>(*state);
  if (owner == nullptr) return;
  auto* server = static_cast<HttpServer*>(self);
  (*owner)->close();
  delete owner;
  *state = nullptr;
  --server->n_open_;
  connected(self, connection, nullptr, MHD_CONNECTION_NOTIFY_STARTED);  // the next request
}

std::optional<Refusal> HttpServer::check_head(MHD_Connection* connection, const std::string& url,
                                              const std::string& method) const {
  // A web page whose name was made to mean this machine could read answers as its own.
  const char* host = header_of(connection, "Host");
  if (socket_.has_local_names() && !keys_.needed() && host != nullptr && !names_a_machine(host)) {
    return Refusal{403, "'Host': expected localhost or an IP address", "host"};
  }
  const moe_endpoint endpoint = endpoint_of(url);
  if (endpoint == 0 && !is_page(url)) {
    return Refusal{404,
                   "no such endpoint; there are /v1/chat/completions, /v1/completions, "
                   "/v1/responses, /v1/messages, /v1/messages/count_tokens, /v1/embeddings, "
                   "/v1/rerank, /v1/models, /tokenize, /health, /metrics and /statistics, and a "
                   "page at /",
                   "unknown_url"};
  }
  const bool allowed =
      keys_.allow(header_of(connection, "Authorization"), header_of(connection, "X-Api-Key"));
  // The page asks for the key, and has nothing to hide itself.
  const bool open =
      url == "/health" || (url == "/metrics" && limits_.open_metrics) || page_file(url) != nullptr;
  if (!open && !allowed) {
    return Refusal{401, "expected 'Authorization: Bearer' or 'x-api-key' with a key of this server",
                   "invalid_api_key", "WWW-Authenticate", "Bearer"};
  }
  const bool right = endpoint == 0 ? method == "GET" || method == "HEAD" : method == "POST";
  if (!right) {
    return Refusal{405, endpoint == 0 ? "expected the method GET" : "expected the method POST",
                   "method_not_allowed", "Allow", endpoint == 0 ? "GET, HEAD" : "POST"};
  }
  if (declared_length(connection) > limits_.max_body) return too_large();
  // A web page can send other types to another site without asking.
  if (endpoint != 0 && !is_json(header_of(connection, "Content-Type"))) {
    return Refusal{415, "expected 'Content-Type: application/json'", "unsupported_media_type"};
  }
  return {};
}

Refusal HttpServer::too_large() const {
  return {413,
          "the body: expected at most " + std::to_string(limits_.max_body) + " bytes (--max-body)",
          "body_too_large"};
}

MHD_Result HttpServer::answer(const Owner& exchange, MHD_Connection* connection,
                              const std::string& url, const std::string& method) {
  Exchange& x = *exchange;
  if (x.submitted) return x.respond();
  watch_.forget(socket_of(connection));
  if (!has_body(connection)) {
    if (const auto refusal = check_head(connection, url, method)) return refuse(x, url, *refusal);
  }
  if (x.too_large) return refuse(x, url, too_large());
  const moe_endpoint endpoint = endpoint_of(url);
  if (endpoint == 0) return get(x, connection, url);
  const std::optional<std::string> model = model_of(x, url);
  x.submitted = true;
  if (!model) return x.respond();
  models_.use(*model, [exchange, endpoint](const ServedModels::Open& open,
                                           const std::string& problem, int status) {
    try {
      if (open != nullptr) return exchange->submit(open, endpoint);
      exchange->refuse(endpoint, status, problem);
    } catch (const std::bad_alloc&) {
      exchange->run_out_of_memory();
    }
  });
  if (exchange->socket() >= 0) watch_.add(exchange);
  return x.respond();
}

// Without one the exchange has an answer. The service of the only model looks for the name itself.
std::optional<std::string> HttpServer::model_of(Exchange& exchange, const std::string& url) {
  const std::vector<std::string> names = models_.names();
  if (!models_.several()) return names[0];
  const std::optional<std::string> name = named_model(exchange.body);
  if (name && models_.has(*name)) return name;
  std::string all;
  for (const std::string& one : names) all += (all.empty() ? "'" : ", '") + one + "'";
  const std::string found = name ? ", found '" + name->substr(0, 60) + "'" : "";
  exchange.refuse(endpoint_of(url), name ? 404 : 400, "'model': expected one of " + all + found,
                  name ? "model_not_found" : "missing_required_parameter");
  return {};
}

MHD_Result HttpServer::get(Exchange& exchange, MHD_Connection* connection, const std::string& url) {
  if (const PageFile* file = page_file(url)) {
    return exchange.respond(200, std::string(file->text), std::string(file->type).c_str(),
                            "Content-Security-Policy", kPagePolicy);
  }
  if (url == "/metrics") {
    return exchange.respond(200, metrics_text(models_), "text/plain; version=0.0.4");
  }
  if (url == "/statistics") return statistics(exchange, connection);
  if (url == "/health") {
    const bool draining = models_.ending();
    const Json json = {{"status", draining ? "ending" : "ok"}};
    return exchange.respond(draining ? 503 : 200, json.dump(), kJsonType);
  }
  return models(exchange, url);
}

// They are those of the model that the query names, or else the first.
MHD_Result HttpServer::statistics(Exchange& exchange, MHD_Connection* connection) {
  const char* asked = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "model");
  const std::string name = asked == nullptr ? models_.names()[0] : without_escapes(asked);
  if (!models_.has(name)) {
    return refuse(exchange, "/statistics",
                  {404, "no such model; /v1/models lists them", "model_not_found"});
  }
  const ServedModels::Open open = models_.open_one(name);
  if (open == nullptr) {
    const Json json = {{"model", name}, {"open", false}};
    return exchange.respond(200, text_of(json), kJsonType);
  }
  return exchange.respond(200, statistics_of(open->service()), kJsonType);
}

// The first fields are those of OpenAI's API, those from "type" on Anthropic's. What is not known
// of a model that is not open is left out.
Json HttpServer::model_json(const std::string& name) const {
  Json model = {{"id", name}, {"object", "model"}, {"created", 0}, {"owned_by", "moe"}};
  const ServedModels::Open open = models_.open_one(name);
  if (open != nullptr) model["max_model_len"] = stats_of(open->service()).context;
  model.update(Json{{"type", "model"},
                    {"display_name", name},
                    {"created_at", "1970-01-01T00:00:00Z"},
                    {"open", open != nullptr}});
  return model;
}

MHD_Result HttpServer::models(Exchange& exchange, const std::string& url) const {
  if (is_model(url)) {
    const std::string name = model_in(url);
    if (models_.has(name)) return exchange.respond(200, text_of(model_json(name)), kJsonType);
    return refuse(exchange, url, {404, "no such model; /v1/models lists them", "model_not_found"});
  }
  const std::vector<std::string> names = models_.names();
  Json list = {{"object", "list"}, {"data", Json::array()}, {"has_more", false}};
  for (const std::string& name : names) list["data"].push_back(model_json(name));
  list["first_id"] = names.front();
  list["last_id"] = names.back();
  return exchange.respond(200, text_of(list), kJsonType);
}

}  // namespace moe_cli
