// SPDX-License-Identifier: MIT
#pragma once
// Errors of which the service does not know, in the shape of the API behind a path.

#include <string>

namespace moe_cli {

/// Whether requests to the path expect Anthropic's API; otherwise OpenAI's.
bool is_anthropic(const std::string& url);
/// {"error": ...}, with "type": "error" in front for Anthropic's API. code: of OpenAI's API; ""
/// none. param: the field of the request; "": none.
std::string error_text(bool anthropic, int status, const std::string& text, const char* code,
                       const char* param = "");

}  // namespace moe_cli
