#pragma once
// A conversation as the text that a model was trained on: the checkpoint's own Jinja template, or
// one of a few built in.

#include <string_view>

#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe {

struct ChatMessage {
  std::string_view role;
  std::string_view content;
  std::string_view thinking = {};  // what came before it in a reply; the template gets both as one
};

/// A variable for the template. value: "true", "false", "none", a decimal integer; otherwise text.
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
};

/// A rendered conversation; what came in with messages and variables is marked, also after the
/// template has cut, joined or changed it.
using ChatText = jinja::MarkedText;

/// Immutable once made: render() may be called from any number of threads.
class ChatTemplate final {
 public:
  /// Parses `source` (copied). MOE_ERR_FORMAT or MOE_ERR_UNSUPPORTED name the construct and line.
  static Result<Box<ChatTemplate>> create(std::string_view source, const Allocator& allocator);

  explicit ChatTemplate(const Allocator& allocator) : program_(allocator) {}

  /// Appends to `out`, unchanged on failure. MOE_ERR_TEXT when the template refuses the
  /// conversation or cannot do what it tries, MOE_ERR_TOO_LONG beyond the limits. Bytes that are
  /// not UTF-8 become U+FFFD.
  Status render(const ChatInput& input, ChatText& out, const jinja::Limits& limits = {}) const;

  /// Whether it reads a variable of that name.
  bool uses(std::string_view variable) const;

 private:
  jinja::Program program_;
};

/// The built-in template of that name; empty when there is none.
std::string_view builtin_chat_template(std::string_view name);
/// The special token that ends a turn in it; empty: none but the end of the text.
std::string_view builtin_chat_turn_end(std::string_view name);
/// Comma-separated names.
const char* builtin_chat_names();

/// "YYYY-MM-DD" that can be a day?
bool is_date(std::string_view text);

}  // namespace moe
