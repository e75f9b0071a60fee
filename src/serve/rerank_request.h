// SPDX-License-Identifier: MIT
#pragma once
// A request for scores: how well documents answer a query.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/serve/encoding_request.h"

namespace moe_serve {

/// A request of /v1/rerank, read and checked.
struct RerankOrder {
  std::string query;
  std::vector<std::string> documents;
  size_t top = 0;    // the results of the answer
  size_t label = 0;  // of the model's scores for a pair, the one that counts
  bool with_documents = false;
  bool receipt = false;
  Json request;  // as it was sent, for its receipt; null: there will be none
};

/// Throws Refusal, or CallError where the request is not to blame.
RerankOrder read_rerank(const Host& host, std::string_view body);

/// Pairs of texts become tokens one by one, so that a request that waits holds its texts alone.
class RerankRequest : public EncodingRequest {
 public:
  RerankRequest(const Host& host, RerankOrder&& order, uint64_t number, const Listener& listener)
      : EncodingRequest(host, number, listener), order_(std::move(order)) {}

  size_t next(moe_session* session) override;
  bool done() const override { return scores_.size() == order_.documents.size(); }
  void answer() override;

 private:
  std::vector<size_t> best_first() const;

  const RerankOrder order_;
  std::vector<float> scores_;                  // of the documents that are done
  std::vector<size_t> cut_;                    // tokens of each pair that were left out
  std::vector<std::vector<int32_t>> prompts_;  // for a receipt
  size_t n_tokens_ = 0;
};

}  // namespace moe_serve
