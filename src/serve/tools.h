// SPDX-License-Identifier: MIT
#pragma once
// Tools that a request offers to the model, and calls of them.

#include <string>
#include <string_view>
#include <vector>

#include "src/serve/fields.h"
#include "src/serve/handles.h"
#include "src/serve/json.h"

namespace moe_serve {

/// A call that the model made.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // a JSON object, as the model wrote it
  size_t at = 0;          // bytes of the content before it

  Json input() const;  // the arguments, parsed
};

/// The call in the text of a piece with MOE_PIECE_TOOL_CALL.
ToolCall read_call(std::string_view json);

/// The tools of a request, and how they may be called.
struct ToolUse {
  Json list = Json::array();  // as chat completions have it; empty: the model gets none
  bool one_call = false;      // at most one in a reply
  bool required = false;      // at least one
  std::string only;           // of this tool; "": any
  std::string schema = {};    // the API's name of a tool's parameters; "": as in `list`
};

// All of these throw Refusal. Those of chat completions, messages and responses:
ToolUse chat_tools(const Json& request);
ToolUse message_tools(const Json& request);
ToolUse response_tools(const Json& request);
/// For a prompt without a reply: no form of calls need be compiled, and templates do not see it.
ToolUse free_of_form(ToolUse use);
/// A text that a grammar holds to its form cannot be a call.
void check_format_alone(const Grammar& grammar, const ToolUse& use, const char* field);

}  // namespace moe_serve
