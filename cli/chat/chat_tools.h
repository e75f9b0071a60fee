// SPDX-License-Identifier: MIT
#pragma once
// Tools that a model may call in a conversation, of chat and batch.

#include <string>

#include "cli/common.h"

namespace moe_cli {

struct ToolOptions {
  std::string file;    // JSON; empty: none
  std::string choice;  // "auto", "required" or a tool's name; empty: auto
};

/// --tools and --tool-choice.
void add_tool_options(CLI::App& app, ToolOptions& o);
/// Gives the chat the tools of the file, if there is one. Throws UsageError for what is wrong in
/// it.
void set_tools(const ToolOptions& o, moe_chat* chat);
/// Whether the next replies must call a tool: as --tool-choice says, or not.
void choose_tool(const ToolOptions& o, bool as_said, moe_chat* chat);

/// A call in a reply, the text of a piece with MOE_PIECE_TOOL_CALL.
struct ToolCall {
  explicit ToolCall(const std::string& json);
  /// As OpenAI's chat completions have it.
  Json json() const;
  /// The arguments in one line.
  std::string shown() const;

  std::string id, name;
  std::string arguments;  // as the model wrote them
};

/// The message that answers a call.
void add_result(const ToolCall& call, const std::string& text, moe_chat* chat);

}  // namespace moe_cli
