// SPDX-License-Identifier: MIT
#pragma once
// The model that a request names, before its service reads the rest.

#include <optional>
#include <string>
#include <string_view>

namespace moe_cli {

/// The text of the member "model" of the object in a body; none if there is none, or the body is no
/// JSON.
std::optional<std::string> named_model(std::string_view body);

}  // namespace moe_cli
