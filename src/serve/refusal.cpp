// SPDX-License-Identifier: MIT
// Writes errors in the shape of the endpoint's API.
#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

// OpenAI's API and Anthropic's share these names.
const char* type_of(int status, bool anthropic) {
  switch (status) {
    case kTooMany:
      return "rate_limit_error";
    case kUnavailable:
      return "overloaded_error";
    case kTimeout:
      return "timeout_error";
    case kNotFound:
      return anthropic ? "not_found_error" : "invalid_request_error";
    default:
      if (status < kInternal) return "invalid_request_error";
      return anthropic ? "api_error" : "server_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

Json Refusal::json(moe_endpoint endpoint) const {
  if (endpoint == MOE_ENDPOINT_MESSAGES || endpoint == MOE_ENDPOINT_COUNT_TOKENS) {
    const Json error = {
        {"type", type_of(status, true)}, {"message", what()}, {"param", text_or_null(param)}};
    return {{"type", "error"}, {"error", error}};
  }
  const Json error = {{"message", what()},
                      {"type", type_of(status, false)},
                      {"param", text_or_null(param)},
                      {"code", text_or_null(code)}};
  return {{"error", error}};
}

}  // namespace moe_serve
