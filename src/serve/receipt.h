// SPDX-License-Identifier: MIT
#pragma once
// Receipts: what an answer was made of, so that anybody with the model file can make it again.

#include <cstdint>
#include <optional>
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
  std::optional<uint64_t> seed;                 // of the texts
};

/// The receipt of a request, with the model, its fingerprint and the request as it was sent but for
/// its field "receipt". The service's receipt function gets it too, if there is one.
Json write_receipt(const Host& host, moe_endpoint endpoint, const Json& request,
                   const ReceiptTokens& tokens);

}  // namespace moe_serve
