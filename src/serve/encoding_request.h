// SPDX-License-Identifier: MIT
#pragma once
// A request for numbers about texts, each of which is evaluated by itself: vectors, or scores.

#include <atomic>
#include <memory>

#include "src/serve/service_request.h"

namespace moe_serve {

/// Used by one thread, except where noted.
class EncodingRequest {
 public:
  EncodingRequest(const Host& host, uint64_t number, const Listener& listener)
      : host_(host), listener_(listener), number_(number) {}
  virtual ~EncodingRequest() = default;
  EncodingRequest(const EncodingRequest&) = delete;
  EncodingRequest& operator=(const EncodingRequest&) = delete;

  uint64_t number() const { return number_; }
  Clock::time_point submitted() const { return submitted_; }
  void cancel() { cancelled_ = true; }  // any thread
  bool cancelled() const { return cancelled_; }

  /// Evaluates the next text, and returns the number of its tokens. Throws CallError.
  virtual size_t next(moe_session* session) = 0;
  virtual bool done() const = 0;
  /// Ends the request: all texts are done.
  virtual void answer() = 0;
  /// Ends it without.
  void fail(const Refusal& refusal) const { listener_.refuse(refusal); }

 protected:
  const Host& host_;
  const Listener listener_;

 private:
  const uint64_t number_;
  const Clock::time_point submitted_ = Clock::now();
  std::atomic<bool> cancelled_{false};
};

}  // namespace moe_serve
