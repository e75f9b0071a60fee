// SPDX-License-Identifier: MIT
#pragma once
// Receipts: what an answer was made of, so that anybody with the model file can make it again.

#include <cstdint>
#include <string>
#include <vector>

#include "src/serve/fingerprint.h"
#include "src/serve/host.h"

namespace moe_serve {

/// The ids that were given and made.
struct ReceiptTokens {
  std::vector<const std::vector<int32_t>*> prompts;
  std::vector<const std::vector<int32_t>*> texts;
  std::vector<moe_finish> finishes;             // of each text
  const std::vector<float>* vectors = nullptr;  // or scores, in place of texts
};

/// How a receipt begins: the model, its fingerprint and the request, as it was sent but for its
/// field "receipt".
Json receipt_head(const Host& host, moe_endpoint endpoint, const Json& request);
/// Adds the tokens and their hash.
void add_tokens(Json& receipt, const ReceiptTokens& tokens);
/// Calls the service's receipt function, if it has one.
void record(const Host& host, const Json& receipt);

}  // namespace moe_serve
