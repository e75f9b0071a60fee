// SPDX-License-Identifier: MIT
#pragma once
// Arguments that models write without JSON's quotes, and their types in a tool's schema.

#include <string_view>

#include "src/base/string.h"

namespace moe {

/// Bits of the types of JSON Schema.
enum ArgumentType : uint32_t {
  kStringType = 1,
  kNumberType = 2,  // also integers
  kBoolType = 4,
  kNullType = 8,
  kListType = 16,
  kObjectType = 32,
  kAnyType = 64  // beside others: what one of the schema's options does not say
};

/// The tool of that name in a valid JSON list of tools, {"type": "function", "function": {...}} or
/// {"name": ...}; empty: there is none.
std::string_view tool_named(std::string_view tools, std::string_view name);
/// The types that a tool's schema allows for an argument; 0: it does not say.
uint32_t argument_types(std::string_view tools, std::string_view tool, std::string_view key);
/// The same in a tool's "parameters".
uint32_t argument_types(std::string_view parameters, std::string_view key);
/// Appends an argument as JSON: as a value of one of `types` if it is one, otherwise as a string.
/// Python's True, False and None count where their types are named.
Status write_argument(uint32_t types, std::string_view text, String& out);
/// Appends Gemma's mapping {key:value,...} as a JSON object; `quote` stands around strings. *good:
/// whether it is one.
Status read_gemma_mapping(std::string_view text, std::string_view quote, String& out, bool* good);

}  // namespace moe
