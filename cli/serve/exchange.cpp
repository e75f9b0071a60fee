// SPDX-License-Identifier: MIT
// Holds the body of one request, submits it, and hands its events to the connection.
#include "cli/serve/exchange.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

#include "cli/common.h"
#include "cli/serve/api_error.h"
#include "cli/serve/served_models.h"

namespace moe_cli {
namespace {

constexpr size_t kBlock = 4096;  // of a stream

// It must need no memory. Clients of every API understand it.
constexpr std::string_view kNoMemoryEvent =
    "event: error\n"
    R"(data: {"type":"error","error":{"message":"not enough memory for the answer",)"
    R"("type":"overloaded_error","param":null,"code":null}})"
    "\n\n";
constexpr std::string_view kErrorName = "event: error\n";
constexpr std::string_view kName = "event: ";
constexpr std::string_view kData = "data: ";
constexpr std::string_view kEnd = "\n\n";
constexpr std::string_view kDone = "data: [DONE]\n\n";

MHD_Response* response_with(std::string_view text, MHD_ResponseMemoryMode mode) {
  // libmicrohttpd does not write to it.
  return MHD_create_response_from_buffer(text.size(), const_cast<char*>(text.data()), mode);
}

using Owner = std::shared_ptr<Exchange>;

}  // namespace

int socket_of(MHD_Connection* connection) {
  const MHD_ConnectionInfo* info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info == nullptr ? -1 : info->connect_fd;
}

Exchange::Exchange(MHD_Connection* connection)
    : connection_(connection), socket_(socket_of(connection)) {
  ticket_.struct_size = sizeof ticket_;
}

void Exchange::submit(std::shared_ptr<ServedModel> model, moe_endpoint endpoint) {
  {
    const std::lock_guard lock(mutex_);
    if (connection_ == nullptr || cancelled_) {  // while the model was opened
      return fail(endpoint, kUnavailable, "the request was cancelled");
    }
    model_ = model;
  }
  named_ = endpoint == MOE_ENDPOINT_MESSAGES || endpoint == MOE_ENDPOINT_RESPONSES;
  auto* owner = new Owner(shared_from_this());  // until the last event
  moe_error error;
  const moe_status status = moe_service_submit(model->service(), endpoint, body.data(), body.size(),
                                               take_event, owner, &ticket_, &error);
  body = std::string();
  if (status == MOE_OK) return finish_submission();
  delete owner;
  const std::lock_guard lock(mutex_);
  fail(endpoint, status == MOE_ERR_MEMORY ? kUnavailable : 500, error.text);
}

// The client may have gone away meanwhile.
void Exchange::finish_submission() {
  std::shared_ptr<ServedModel> late;
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
    if (cancelled_ && !ended_) late = model_;
    resume();
  }
  if (late != nullptr) moe_service_cancel(late->service(), ticket_.id);
}

void Exchange::refuse(moe_endpoint endpoint, int status, const std::string& text,
                      const char* code) {
  const std::lock_guard lock(mutex_);
  if (status == kUnavailable) retry_after_ = 1;
  fail(endpoint, status, text, code, "model");
}

void Exchange::run_out_of_memory() {
  const std::lock_guard lock(mutex_);
  model_.reset();
  failed_ = true;
  ready_ = true;
  ended_ = true;
  status_ = kUnavailable;
  resume();
}

// With the mutex locked.
void Exchange::fail(moe_endpoint endpoint, int status, const std::string& text, const char* code,
                    const char* param) {
  model_.reset();
  ready_ = true;
  ended_ = true;
  status_ = status;
  const bool anthropic = endpoint == MOE_ENDPOINT_MESSAGES || endpoint == MOE_ENDPOINT_COUNT_TOKENS;
  out_ = error_text(anthropic, status_, text, code, param);
  resume();
}

void Exchange::take_event(void* user, const moe_service_event* event) {
  auto* owner = static_cast<Owner*>(user);
  (*owner)->take(*event);
  if (event->last != 0) delete owner;
}

void Exchange::take(const moe_service_event& event) {
  bool cancel = false;
  {
    const std::lock_guard lock(mutex_);
    ended_ = event.last != 0;
    // Before the client has the answer, and asks for another model that needs the room. It is never
    // the last reference: the server keeps a model that somebody uses.
    if (ended_) model_.reset();
    const size_t n_before = out_.size();
    try {
      if (!failed_) append(event);
    } catch (const std::bad_alloc&) {  // nothing may be thrown through the library
      failed_ = true;
      cancel = !ended_;
      out_.resize(n_before);  // whole events alone
      status_ = 503;
    }
    resume();
  }
  if (cancel) this->cancel();
}

void Exchange::append(const moe_service_event& event) {
  if (ticket_.stream == 0) {
    out_.assign(event.json, event.n_bytes);
    status_ = event.status;
    retry_after_ = event.retry_after;
    return;
  }
  if (event.name != nullptr) out_.append(kName).append(event.name).append("\n");
  out_.append(kData).append(event.json, event.n_bytes).append(kEnd);
  if (ended_ && event.name == nullptr && event.status == 200) out_.append(kDone);
}

void Exchange::resume() {
  if (!suspended_) return;
  suspended_ = false;
  MHD_resume_connection(connection_);
}

void Exchange::suspend() {
  suspended_ = true;
  MHD_suspend_connection(connection_);
}

MHD_Result Exchange::respond() {
  const std::lock_guard lock(mutex_);
  if (ready_ && ticket_.stream != 0) return queue_stream();
  if (ready_ && ended_) return queue_answer();
  suspend();
  return MHD_YES;
}

MHD_Result Exchange::queue_stream() {
  auto* owner = new Owner(shared_from_this());
  MHD_Response* response =
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kBlock, read, owner, drop);
  if (response == nullptr) {
    delete owner;
    return MHD_NO;
  }
  MHD_add_response_header(response, "X-Accel-Buffering", "no");  // a proxy shall pass it on at once
  return queue(200, response, "text/event-stream");
}

MHD_Result Exchange::queue_answer() {
  std::string_view no_memory = kNoMemoryEvent;
  no_memory.remove_prefix(kErrorName.size() + kData.size());
  no_memory.remove_suffix(kEnd.size());
  MHD_Response* response = failed_ ? response_with(no_memory, MHD_RESPMEM_PERSISTENT)
                                   : response_with(out_, MHD_RESPMEM_MUST_COPY);
  if (response != nullptr && retry_after_ > 0) {
    MHD_add_response_header(response, "Retry-After", std::to_string(retry_after_).c_str());
  }
  return queue(status_, response, kJsonType);
}

MHD_Result Exchange::respond(int status, const std::string& text, const char* type,
                             const char* header, const char* value) {
  MHD_Response* response = response_with(text, MHD_RESPMEM_MUST_COPY);
  if (response != nullptr && header != nullptr) MHD_add_response_header(response, header, value);
  return queue(status, response, type);
}

MHD_Result Exchange::queue(int status, MHD_Response* response, const char* type) {
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, "Content-Type", type);
  MHD_add_response_header(response, "Cache-Control", "no-store");
  MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
  if (last_of_connection) MHD_add_response_header(response, "Connection", "close");
  const MHD_Result queued =
      MHD_queue_response(connection_, static_cast<unsigned>(status), response);
  MHD_destroy_response(response);
  return queued;
}

ssize_t Exchange::read(void* user, uint64_t, char* buffer, size_t capacity) {
  return (*static_cast<Owner*>(user))->give(buffer, capacity);
}

void Exchange::drop(void* user) { delete static_cast<Owner*>(user); }

ssize_t Exchange::give(char* buffer, size_t capacity) {
  const std::lock_guard lock(mutex_);
  const size_t n = std::min(capacity, out_.size() - n_sent_);
  if (n == 0) {
    if (ended_ || failed_) return end_stream(buffer, capacity);
    suspend();
    return 0;
  }
  std::memcpy(buffer, out_.data() + n_sent_, n);
  n_sent_ += n;
  if (n_sent_ == out_.size()) {
    out_.clear();
    n_sent_ = 0;
  }
  last_sent_ = SteadyClock::now();
  return static_cast<ssize_t>(n);
}

// A client that lacks an event must not take the stream for a whole one.
ssize_t Exchange::end_stream(char* buffer, size_t capacity) {
  last_sent_ = SteadyClock::now();
  if (!failed_ || told_) return MHD_CONTENT_READER_END_OF_STREAM;
  std::string_view event = kNoMemoryEvent;
  if (!named_) event.remove_prefix(kErrorName.size());
  if (capacity < event.size()) return MHD_CONTENT_READER_END_WITH_ERROR;
  told_ = true;
  std::memcpy(buffer, event.data(), event.size());
  return static_cast<ssize_t>(event.size());
}

void Exchange::close() {
  bool unfinished = false;
  {
    const std::lock_guard lock(mutex_);
    connection_ = nullptr;
    suspended_ = false;
    unfinished = submitted && !ended_;
  }
  if (unfinished) cancel();
}

void Exchange::cancel() {
  std::shared_ptr<ServedModel> model;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (!ready_ || model_ == nullptr) return;
    model = model_;
  }
  moe_service_cancel(model->service(), ticket_.id);
}

bool Exchange::ping(SteadyClock::duration after) {
  const std::lock_guard lock(mutex_);
  if (connection_ == nullptr || ended_) return false;
  if (ready_ && ticket_.stream != 0 && suspended_ && SteadyClock::now() - last_sent_ >= after) {
    out_ += ": ping\n\n";
    resume();
  }
  return true;
}

int Exchange::socket() {
  const std::lock_guard lock(mutex_);
  return connection_ == nullptr || ended_ ? -1 : socket_;
}

}  // namespace moe_cli
