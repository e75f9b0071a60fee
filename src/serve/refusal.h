// SPDX-License-Identifier: MIT
#pragma once
// An answer that says why there is no other, in the shape of OpenAI's API.

#include <stdexcept>
#include <string>

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

  /// {"error": {"message", "type", "param", "code"}}
  Json json() const;

  int status;
  std::string param;  // the field of the request; empty: none
  std::string code;   // empty: none
};

/// The refusal of a field of a request.
inline Refusal bad_field(const std::string& field, const std::string& text,
                         const std::string& code = "invalid_value") {
  return {kBadRequest, "'" + field + "': " + text, field, code};
}

}  // namespace moe_serve
