// SPDX-License-Identifier: MIT
#pragma once
// The paths of the service's endpoints.

#include <string_view>

#include "include/moe_c.h"

namespace moe_cli {

/// 0: none that takes a body.
inline moe_endpoint endpoint_of(std::string_view path) {
  if (path == "/v1/chat/completions") return MOE_ENDPOINT_CHAT;
  if (path == "/v1/completions") return MOE_ENDPOINT_COMPLETIONS;
  if (path == "/v1/responses") return MOE_ENDPOINT_RESPONSES;
  if (path == "/v1/messages") return MOE_ENDPOINT_MESSAGES;
  if (path == "/v1/messages/count_tokens") return MOE_ENDPOINT_COUNT_TOKENS;
  if (path == "/v1/embeddings") return MOE_ENDPOINT_EMBEDDINGS;
  if (path == "/v1/rerank" || path == "/rerank") return MOE_ENDPOINT_RERANK;
  if (path == "/tokenize") return MOE_ENDPOINT_TOKENIZE;
  return moe_endpoint{};
}

}  // namespace moe_cli
