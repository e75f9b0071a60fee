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

Refusal out_of_memory() { return {kUnavailable, "out of memory"}; }

Refusal service_ending() { return {kUnavailable, "the service is ending", "", "ending"}; }

Refusal request_cancelled() { return {kCancelled, "the request was cancelled", "", "cancelled"}; }

Refusal request_late(int32_t max_seconds) {
  return {kTimeout, "the request took longer than " + std::to_string(max_seconds) + " s", "",
          "timeout"};
}

Refusal evaluation_failure(const CallError& e) {
  const bool resources = e.code == MOE_ERR_MEMORY || e.code == MOE_ERR_BUDGET;
  const bool text = e.code == MOE_ERR_TOO_LONG || e.code == MOE_ERR_TEXT;
  return {resources ? kUnavailable : text ? kBadRequest : kInternal, e.what()};
}

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
