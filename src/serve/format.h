// SPDX-License-Identifier: MIT
#pragma once
// The form that an answer must have.

#include "src/serve/host.h"
#include "src/serve/json.h"

namespace moe_serve {

/// The grammar of a format: of a "response_format" of chat completions, or of the "format" of
/// responses, which has the members of "json_schema" itself (flat). Null for {"type": "text"}.
/// Throws Refusal, which calls the format `field`.
Grammar read_format(const Host& host, const Json& format, const std::string& field, bool flat);

}  // namespace moe_serve
