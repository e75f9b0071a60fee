// SPDX-License-Identifier: MIT
#pragma once
// Renders a conversation as text for the model, with the checkpoint's Jinja template or a built-in
// one.

#include <string_view>

#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe {

struct ChatMessage {
  std::string_view role;
  std::string_view content;
  std::string_view thinking = {};  // thinking of a reply; the template gets it with the content
  /// A valid JSON object of more members, such as tool_calls; empty: none.
  std::string_view members = {};
  /// Texts behind the content: a mark of the template's author, calls, another mark.
  std::string_view calls[3] = {};
  bool no_content = false;      // the content is none
  bool thinking_apart = false;  // the template gets it as the member "thinking"
};

/// A template variable. value: "true", "false", "none", a decimal integer; otherwise text.
struct ChatVariable {
  std::string_view name;
  std::string_view value;
};

struct ChatInput {
  std::span<const ChatMessage> messages;
  bool add_generation_prompt = false;
  std::span<const ChatVariable> variables;
  std::string_view bos_token;  // spellings; empty: the model has none
  std::string_view eos_token;
  std::string_view unk_token;
  std::string_view pad_token;
  std::string_view date;        // "YYYY-MM-DD"; empty: strftime_now is not defined
  std::string_view think_open;  // tags around thinking
  std::string_view think_close;
  std::string_view tools = {};  // a valid JSON list; empty: none
};

/// A rendered conversation; text from messages and variables is marked, even after the template has
/// cut, joined or changed it.
using ChatText = jinja::MarkedText;

/// Immutable after create(): any number of threads may call render().
class ChatTemplate final {
 public:
  /// Parses `source` (copied). MOE_ERR_FORMAT or MOE_ERR_UNSUPPORTED name the construct and line.
  static Result<Box<ChatTemplate>> create(std::string_view source, const Allocator& allocator);

  explicit ChatTemplate(const Allocator& allocator) : program_(allocator) {}

  /// Appends to `out`, unchanged on failure. MOE_ERR_TEXT if the template rejects the conversation
  /// or fails, MOE_ERR_TOO_LONG beyond the limits. Invalid UTF-8 becomes U+FFFD.
  Status render(const ChatInput& input, ChatText& out, const jinja::Limits& limits = {}) const;

  /// True if it reads a variable of that name.
  bool uses(std::string_view variable) const;

 private:
  jinja::Program program_;
};

/// The built-in template of that name; empty if unknown.
std::string_view builtin_chat_template(std::string_view name);
/// The special token that ends its turns; empty: only the end-of-text token.
std::string_view builtin_chat_turn_end(std::string_view name);
/// Comma-separated names.
const char* builtin_chat_names();
/// One of them; null behind the last.
const char* builtin_chat_name(size_t index);

/// True for a valid date "YYYY-MM-DD".
bool is_date(std::string_view text);

}  // namespace moe
