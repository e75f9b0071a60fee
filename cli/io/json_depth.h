// SPDX-License-Identifier: MIT
#pragma once
// A check of JSON before it is parsed: deep nesting costs the parser many times the text's size,
// and freeing or printing the result is recursive.

#include <string>

namespace moe_cli {

inline constexpr int kMostDepth = 64;

/// True if objects and lists nest deeper than kMostDepth.
bool nested_too_deep(const std::string& json);

}  // namespace moe_cli
