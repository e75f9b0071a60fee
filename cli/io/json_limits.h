// SPDX-License-Identifier: MIT
#pragma once
// A check of JSON before it is parsed: deep nesting costs the parser many times the text's size,
// and freeing or printing the result is recursive; a key is looked up among those before it in its
// object, which takes minutes for a megabyte of keys.

#include <string>

namespace moe_cli {

inline constexpr int kMostDepth = 64;
inline constexpr int kMostKeys = 4096;  // of an object, as moe serve takes them

/// Why a text is not parsed, such as "nested deeper than 64"; empty: it may be.
std::string beyond_limits(const std::string& json);

}  // namespace moe_cli
