// SPDX-License-Identifier: MIT
#pragma once
// A request for vectors of texts.

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "src/serve/service_request.h"

namespace moe_serve {

/// A request of /v1/embeddings, read and checked.
struct EmbeddingOrder {
  std::vector<std::vector<int32_t>> texts;
  bool base64 = false;
  bool receipt = false;
  Json request;  // as it was sent, for its receipt; null: there will be none
};

/// Throws Refusal, or CallError where the request is not to blame.
EmbeddingOrder read_embedding(const Host& host, std::string_view body);

/// Used by one thread, except where noted.
class EmbeddingRequest {
 public:
  EmbeddingRequest(const Host& host, EmbeddingOrder&& order, uint64_t number,
                   const Listener& listener);

  uint64_t number() const { return number_; }
  Clock::time_point submitted() const { return submitted_; }
  void cancel() { cancelled_ = true; }  // any thread
  bool cancelled() const { return cancelled_; }

  /// Evaluates the next text, and returns the number of its tokens. Throws CallError.
  size_t next(moe_session* session);
  bool done() const { return n_done_ == order_.texts.size(); }
  /// Ends the request: all texts are done.
  void answer() const;
  /// Ends it without.
  void fail(const Refusal& refusal) const { listener_.refuse(refusal); }

 private:
  Json vector_json(size_t text) const;

  const uint64_t number_;
  const Host& host_;
  const EmbeddingOrder order_;
  const Listener listener_;
  const Clock::time_point submitted_ = Clock::now();
  std::vector<float> vectors_;  // (texts, d_model)
  size_t n_done_ = 0;           // texts
  std::atomic<bool> cancelled_{false};
};

}  // namespace moe_serve
