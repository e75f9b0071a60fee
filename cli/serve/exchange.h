// SPDX-License-Identifier: MIT
#pragma once
// One HTTP request and its answer, between the threads of the server and that of the service.

#include <microhttpd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "include/moe_c.h"

namespace moe_cli {

using SteadyClock = std::chrono::steady_clock;

class ServedModel;

inline constexpr int kUnavailable = 503;
inline constexpr const char* kJsonType = "application/json";

/// -1 if libmicrohttpd does not know it.
int socket_of(MHD_Connection* connection);

/// The service appends events, and libmicrohttpd's threads send them. A connection whose answer is
/// not there yet is suspended, and takes no time of any thread.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  explicit Exchange(MHD_Connection* connection);

  // The request, by the thread of the connection alone, until it is submitted.
  std::string body;
  size_t n_received = 0;  // bytes of it, also of those that are not kept
  bool too_large = false;
  bool submitted = false;           // or its model is being opened
  bool last_of_connection = false;  // which is closed after the answer

  /// Submits the body to a model, which the exchange keeps. A failed call becomes an answer. Any
  /// thread, once; or refuse().
  void submit(std::shared_ptr<ServedModel> model, moe_endpoint endpoint);
  /// Answers with an error of the field "model": there is none. code: as error_text() has it.
  void refuse(moe_endpoint endpoint, int status, const std::string& text, const char* code = "");
  /// The same where there was no memory for either.
  void run_out_of_memory();
  /// Queues the answer, or the beginning of a stream; suspends the connection if there is none yet.
  MHD_Result respond();
  /// Queues another answer.
  MHD_Result respond(int status, const std::string& text, const char* type,
                     const char* header = nullptr, const char* value = nullptr);

  // Any thread.
  /// The connection's thread is done with it; what the service still works on is cancelled.
  void close();
  void cancel();
  /// Keeps a stream from looking dead. False when there is nothing more to wait for.
  bool ping(SteadyClock::duration after);
  /// The socket, or -1 when there is nothing more to wait for.
  int socket();
  bool asked_to_cancel = false;  // by the thread of Watch alone

 private:
  static void take_event(void* user, const moe_service_event* event);
  static ssize_t read(void* user, uint64_t position, char* buffer, size_t capacity);
  static void drop(void* user);
  void take(const moe_service_event& event);
  void append(const moe_service_event& event);
  ssize_t give(char* buffer, size_t capacity);
  ssize_t end_stream(char* buffer, size_t capacity);
  void finish_submission();
  void fail(moe_endpoint endpoint, int status, const std::string& text, const char* code = "",
            const char* param = "");
  void resume();
  void suspend();
  MHD_Result queue_stream();
  MHD_Result queue_answer();
  MHD_Result queue(int status, MHD_Response* response, const char* type);

  moe_service_ticket ticket_{};
  bool named_ = false;  // the events of a stream have names
  std::mutex mutex_;    // guards what follows
  MHD_Connection* connection_;
  const int socket_;
  std::shared_ptr<ServedModel> model_;  // that works on it, until the last event
  bool ready_ = false;                  // ticket and model are known, or there is an answer
  bool cancelled_ = false;
  bool suspended_ = false;
  bool ended_ = false;   // the service has sent its last event
  bool failed_ = false;  // there was no memory for an event; all later ones are dropped
  bool told_ = false;    // the client knows that
  int status_ = 0;
  int retry_after_ = 0;
  std::string out_;    // events that were not sent
  size_t n_sent_ = 0;  // bytes of it
  SteadyClock::time_point last_sent_ = SteadyClock::now();
};

}  // namespace moe_cli
