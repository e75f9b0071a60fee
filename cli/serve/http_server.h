// SPDX-License-Identifier: MIT
#pragma once
// HTTP around a service, by libmicrohttpd.

#include <microhttpd.h>

#include <atomic>
#include <memory>
#include <string>

#include "cli/serve/api_keys.h"
#include "cli/serve/exchange.h"
#include "cli/serve/listener.h"
#include "cli/serve/request_head.h"
#include "cli/serve/served_models.h"
#include "cli/serve/watch.h"

namespace moe_cli {

struct HttpLimits {
  size_t max_body = 0;  // bytes
  int max_connections = 0;
  int idle_seconds = 0;       // of a connection that neither sends nor takes anything
  bool open_metrics = false;  // /metrics needs no key
};

class HttpServer {
 public:
  /// Answers from now on. What is passed by reference must outlive it, like the models. Throws
  /// CallError.
  HttpServer(ServedModels& models, const ApiKeys& keys, const HttpLimits& limits,
             ListeningSocket& socket);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// The services must have sent the last events of all requests, and be draining.
  ~HttpServer();

  /// Takes no more connections and closes the socket; connections that are open end with their
  /// next answer.
  void stop_listening();
  /// Ends the requests that the services still work on.
  void cancel_all() { watch_.cancel_all(); }
  /// The number of requests whose answers are not sent yet.
  int n_open() const { return n_open_; }

 private:
  static MHD_Result handle(void* self, MHD_Connection* connection, const char* url,
                           const char* method, const char* version, const char* part,
                           size_t* n_bytes, void** state);
  static void completed(void* self, MHD_Connection* connection, void** state,
                        MHD_RequestTerminationCode why);
  static void connected(void* self, MHD_Connection* connection, void** state,
                        MHD_ConnectionNotificationCode what);
  MHD_Result begin(MHD_Connection* connection, const std::string& url, const std::string& method,
                   const std::string& version, void** state);
  bool take(Exchange& exchange, const char* part, size_t n_bytes) const;
  std::optional<Refusal> check_head(MHD_Connection* connection, const std::string& url,
                                    const std::string& method) const;
  MHD_Result answer(const std::shared_ptr<Exchange>& exchange, MHD_Connection* connection,
                    const std::string& url, const std::string& method);
  std::optional<std::string> model_of(Exchange& exchange, const std::string& url);
  MHD_Result get(Exchange& exchange, MHD_Connection* connection, const std::string& url);
  MHD_Result statistics(Exchange& exchange, MHD_Connection* connection);
  Json model_json(const std::string& name) const;
  MHD_Result models(Exchange& exchange, const std::string& url) const;
  Refusal too_large() const;

  ServedModels& models_;
  const ApiKeys& keys_;
  const HttpLimits limits_;
  ListeningSocket& socket_;
  std::atomic<bool> ending_{false};
  std::atomic<int> n_open_{0};
  Watch watch_;
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace moe_cli
