// SPDX-License-Identifier: MIT
#pragma once
// Tools, and messages with calls and results, in the JSON of OpenAI's chat completions.

#include <string_view>

#include "src/base/string.h"

namespace moe {

/// Checks a list of tools. MOE_ERR_ARGUMENT names the place and what is expected there.
Status check_tools(std::string_view tools);

/// Whether the arguments of one of the tools shall be held to their schema ("strict": true).
bool any_strict(std::string_view tools);

/// Appends the list without the members "strict", which say nothing to a model.
Status write_without_strict(std::string_view tools, String& out);

/// A message taken apart.
struct MessageParts {
  explicit MessageParts(const Allocator& a) : role(a), content(a), thinking(a), members(a) {}

  String role;
  String content;
  String thinking;          // its member reasoning_content
  String members;           // an object of all others, without those that are null; empty: none
  bool no_content = false;  // it is null, or not there
  bool calls = false;       // there are tool_calls
};

/// Reads a message. The arguments of its calls become objects. MOE_ERR_ARGUMENT as check_tools.
Status read_message(std::string_view message, MessageParts& out);

/// Appends the members of a message with the arguments of its calls as texts of JSON, or as
/// objects. MOE_ERR_ARGUMENT for arguments that are neither.
Status rewrite_calls(std::string_view members, bool as_texts, String& out);

/// Appends the calls of members that read_message() gave as a list [{"name", "arguments"}, ...].
Status write_call_list(std::string_view members, String& out);

}  // namespace moe
