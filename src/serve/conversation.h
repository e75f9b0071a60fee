// SPDX-License-Identifier: MIT
#pragma once
// The turns of a conversation, and what the chat template makes of them.

#include <string>
#include <vector>

#include "src/serve/host.h"
#include "src/serve/json.h"
#include "src/serve/tools.h"

namespace moe_serve {

/// A message of a conversation, as the chat template gets it.
struct Turn {
  std::string role;
  std::string content;
  /// A message with calls, or a result, as moe_chat_add_message takes it; null: neither.
  Json message = nullptr;
  std::string where = {};  // in the request, for a message
};

/// The types of a content's parts.
struct PartTypes {
  std::vector<std::string> texts;    // whose member "text" counts
  std::vector<std::string> skipped;  // thinking of earlier replies, which templates do not get
};

/// The settings of a conversation besides its turns.
struct ChatOptions {
  std::string list;  // the field of the request that has the turns
  /// The template's variable reasoning_effort, and its field in the request; "": not given.
  std::string effort = {};
  std::string effort_field = {};
  moe_thinking thinking = MOE_THINKING_DEFAULT;
  std::string thinking_field = {};
  ToolUse tools = {};
};

// All of these throw Refusal.
/// The text in object[key], which the request calls where.key.
std::string text_in(const Json& object, const char* key, const std::string& where);
/// Refuses keys that are none of `known`, unless they have no value. where: "" or "messages[0]".
void check_keys(const Json& object, const std::string& where,
                const std::vector<const char*>& known);
/// The text of a part of a content.
std::string part_text(const Json& part, const std::string& where, const PartTypes& types);
/// A text, or the texts of a list of parts, one after the other.
std::string content_of(const Json& content, const std::string& where, const PartTypes& types);
/// `role`, if a conversation can have it. "developer" is a newer name of "system", which a template
/// that does not know it gets.
std::string role_of(const Host& host, const std::string& role, const std::string& where);
/// The non-empty list of messages in a field of the request, if there is a chat template for it.
const Json& messages_in(const Json& request, const char* field);
/// Reads an effort from object[key], if it is there, which the request calls where.key.
void read_effort(const Json& object, const char* key, const std::string& where,
                 ChatOptions& options);
/// The conversation, with the request's "chat_template_kwargs", in a chat without a session.
Chat conversation(const Host& host, const Json& request, const std::vector<Turn>& turns,
                  const ChatOptions& options);
/// The tokens of a conversation with the beginning of a reply. list: as in ChatOptions.
std::vector<int32_t> conversation_tokens(const moe_chat* chat, const std::string& list);

/// A reply with a call, and the result of one.
Json earlier_call(const std::string& id, const std::string& name, const Json& arguments);
Turn result_turn(const std::string& id, const std::string& content, const std::string& where);
/// Appends calls to the last turn, if that is a reply, and to a new one otherwise.
void add_calls(std::vector<Turn>& turns, const Json& calls, const std::string& where);

/// The turns of a chat completion.
std::vector<Turn> chat_turns(const Host& host, const Json& request);

}  // namespace moe_serve
