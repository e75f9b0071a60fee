// SPDX-License-Identifier: MIT
#pragma once
// An answer that says why there is no other.

#include <stdexcept>
#include <string>

#include "include/moe_c.h"
#include "src/serve/handles.h"
#include "src/serve/json.h"

namespace moe_serve {

/// The HTTP statuses of refusals.
inline constexpr int kBadRequest = 400;
inline constexpr int kNotFound = 404;
inline constexpr int kTooMany = 429;
inline constexpr int kCancelled = 499;  // nginx's: the client has gone away
inline constexpr int kInternal = 500;
inline constexpr int kUnavailable = 503;
inline constexpr int kTimeout = 504;

struct Refusal : std::runtime_error {
  Refusal(int http, const std::string& text, const std::string& field = "",
          const std::string& name = "")
      : std::runtime_error(text), status(http), param(field), code(name) {}

  /// As the API of the endpoint says errors: {"error": {"message", "type", "param", "code"}}, or
  /// for Anthropic's {"type": "error", "error": {"type", "message", "param"}}.
  Json json(moe_endpoint endpoint) const;

  int status;
  std::string param;  // the field of the request; empty: none
  std::string code;   // empty: none
};

/// The refusal of a field of a request.
inline Refusal bad_field(const std::string& field, const std::string& text,
                         const std::string& code = "invalid_value") {
  return {kBadRequest, "'" + field + "': " + text, field, code};
}

/// The refusal of a request without a field that it needs.
inline Refusal missing_field(const std::string& field) {
  return {kBadRequest, "'" + field + "' is missing", field, "missing_required_parameter"};
}

// The last words of requests.
Refusal out_of_memory();
Refusal service_ending();
Refusal request_cancelled();
Refusal request_late(int32_t max_seconds);
/// The request had a text that could not be evaluated.
Refusal evaluation_failure(const CallError& e);

}  // namespace moe_serve
