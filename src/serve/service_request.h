// SPDX-License-Identifier: MIT
#pragma once
// A request that was taken: its texts, and the events that answer it.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/serve/answer.h"
#include "src/serve/refusal.h"

namespace moe_serve {

using Clock = std::chrono::steady_clock;

/// The caller's callback, for a request of an endpoint.
class Listener {
 public:
  Listener(moe_endpoint endpoint, moe_service_event_fn function, void* pointer)
      : endpoint_(endpoint), callback_(function), user_(pointer) {}
  moe_endpoint endpoint() const { return endpoint_; }

  /// A whole answer, which is the last event.
  void answer(const Json& json) const;
  /// A part of a stream. Throws std::bad_alloc before the callback is called.
  void send(const Json& json, bool last) const;
  /// The last event: why there is no answer, or why `stream` goes no further; null: not a stream.
  void refuse(const Refusal& refusal, Answer* stream = nullptr) const;

 private:
  bool has_names() const;
  const char* name_of(const Json& event) const;
  void call(std::string_view text, moe_service_event event) const;  // terminated

  moe_endpoint endpoint_;
  moe_service_event_fn callback_;
  void* user_;
};

/// Used by the thread of the scheduler alone, except where noted.
class ServiceRequest {
 public:
  ServiceRequest(const Host& host, Order&& order, uint64_t number, const Listener& listener);

  uint64_t number() const { return number_; }
  const std::vector<std::unique_ptr<Text>>& texts() const { return texts_; }
  moe_chat* chat() const { return chat_.get(); }
  Clock::time_point submitted() const { return submitted_; }
  bool ended() const { return ended_; }
  void cancel() { cancelled_ = true; }  // any thread
  bool cancelled() const { return cancelled_; }

  /// The first n tokens of a text's prompt were not evaluated again.
  void count_reused(const Text& text, size_t n);
  // Each may send an event. A text begins, has gone on, or has ended; true: the last of them.
  void begin(const Text& text);
  void report(Text& text);
  bool finish(Text& text);
  /// Ends the request.
  void fail(const Refusal& refusal);

 private:
  bool streams() const { return settings_.stream; }
  void add_receipt(Json& last_event) const;
  void send(const Answer::Events& events, bool last) const;

  const uint64_t number_;
  const Host& host_;
  const Listener listener_;
  const Settings settings_;
  const Chat chat_;     // null: not a conversation
  const Json request_;  // as it was sent; null: no receipt
  const std::unique_ptr<Answer> answer_;
  std::vector<std::unique_ptr<Text>> texts_;
  size_t n_left_;
  Usage usage_;
  const Clock::time_point submitted_ = Clock::now();
  bool ended_ = false;
  std::atomic<bool> cancelled_{false};
};

}  // namespace moe_serve
