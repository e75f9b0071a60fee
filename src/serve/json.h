// SPDX-License-Identifier: MIT
#pragma once
// JSON of requests and answers.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace moe_serve {

using Json = nlohmann::ordered_json;

/// The object in the body of a request, without members that are null, which clients write for "not
/// given". Throws Refusal for what is no JSON in UTF-8, no object, or nested too deeply.
Json parse_body(std::string_view body);
/// The arguments of a call, which the library has checked. Of equal keys the last one counts.
Json parse_arguments(std::string_view json);
/// In one line. Bytes that are no UTF-8 become U+FFFD.
std::string to_text(const Json& json);
/// A value for a message, cut after 40 bytes.
std::string shown(const Json& value);
/// "a number", "a string" ...: what a value is, for a message.
std::string kind_of(const Json& value);

}  // namespace moe_serve
