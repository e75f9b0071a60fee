// SPDX-License-Identifier: MIT
#pragma once
// A request for vectors of texts.

#include <string_view>
#include <utility>
#include <vector>

#include "src/serve/encoding_request.h"

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

class EmbeddingRequest : public EncodingRequest {
 public:
  EmbeddingRequest(const Host& host, EmbeddingOrder&& order, uint64_t number,
                   const Listener& listener)
      : EncodingRequest(host, number, listener), order_(std::move(order)) {}

  size_t next(moe_session* session) override;
  bool done() const override { return n_done_ == order_.texts.size(); }
  void answer() override;

 private:
  Json vector_json(size_t text) const;

  const EmbeddingOrder order_;
  std::vector<float> vectors_;  // (texts, d_model)
  size_t n_done_ = 0;           // texts
};

}  // namespace moe_serve
