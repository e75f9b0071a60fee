// SPDX-License-Identifier: MIT
// Writes errors with the names that OpenAI's and Anthropic's APIs have for statuses.
#include "cli/serve/api_error.h"

#include "cli/common.h"

namespace moe_cli {
namespace {

const char* type_of(bool anthropic, int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return anthropic ? "permission_error" : "invalid_request_error";
    case 404:
      return anthropic ? "not_found_error" : "invalid_request_error";
    case 413:
      return anthropic ? "request_too_large" : "invalid_request_error";
    case 500:
      return anthropic ? "api_error" : "server_error";
    case 503:
      return "overloaded_error";
    default:
      return "invalid_request_error";
  }
}

}  // namespace

bool is_anthropic(const std::string& url) { return url.starts_with("/v1/messages"); }

std::string error_text(bool anthropic, int status, const std::string& text, const char* code,
                       const char* param) {
  Json json = Json::object();
  if (anthropic) json["type"] = "error";
  Json& error = json["error"];
  error = {{"message", text}, {"type", type_of(anthropic, status)}, {"param", nullptr}};
  if (*param != '\0') error["param"] = param;
  if (!anthropic) error["code"] = *code == '\0' ? Json() : Json(code);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace moe_cli
