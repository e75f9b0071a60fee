// SPDX-License-Identifier: MIT
#pragma once
// A conversation in a session: messages, the template that renders them as text, replies.

#include <atomic>

#include "src/run/stepped.h"
#include "src/text/chat/chat_template.h"
#include "src/text/chat/thinking.h"
#include "src/text/chat/tools/parser.h"

namespace moe {

inline constexpr size_t kMaxRoleBytes = 256;

enum class Thinking : uint8_t { kDefault, kOn, kOff };

struct ChatOptions {
  std::string_view source;    // of the template
  std::string_view turn_end;  // token that ends a reply besides EOS; may be empty
  std::span<const ChatVariable> variables;
  Thinking thinking = Thinking::kDefault;
  std::string_view date;  // "YYYY-MM-DD", or empty
};

struct NamedCall {
  explicit NamedCall(const Allocator& a) : id(a), name(a) {}
  String id;
  String name;  // of the tool, in quotes
};

/// One message; a reply stores its thinking separately.
struct StoredMessage {
  explicit StoredMessage(const Allocator& a)
      : role(a), content(a), thinking(a), members(a), named(a) {}

  /// Without the white space after a tag.
  std::string_view shown_content() const { return slice(content.view(), content_skip); }
  std::string_view shown_thinking() const { return slice(thinking.view(), thinking_skip); }

  String role;
  String content;
  String thinking;
  size_t content_skip = 0;
  size_t thinking_skip = 0;
  String members;  // a JSON object of more members, such as tool_calls; empty: none
  bool no_content = false;
  bool calls = false;      // there are tool_calls
  Array<NamedCall> named;  // those with an id
};

struct ChatReply : GenerateResult {
  int32_t n_reused = 0;    // of the prompt, already in the session
  int32_t n_thinking = 0;  // of those generated
  int32_t n_calls = 0;     // of tools
};

/// Sets `named`, so that results of the calls get the names of their tools.
Status name_calls(StoredMessage& message);

/// How a template gets the calls of a message.
struct CallStyle {
  bool in_content = false;  // as text behind the content: the template ignores tool_calls
  bool texts = false;       // arguments as texts of JSON; otherwise as mappings
  bool empty_text = false;  // the content of a message that has none is "" and not none
};

/// Used by one thread at a time, like the session; a concurrent call that would change it gets
/// MOE_ERR_STATE. The tokenizer must outlive it, and so must its session. A failed call leaves the
/// messages unchanged.
class Chat final {
 public:
  /// Copies `options`. MOE_ERR_FORMAT or MOE_ERR_UNSUPPORTED if the template is not usable;
  /// MOE_ERR_UNSUPPORTED if thinking is requested or disabled and the template has no variable for
  /// it.
  static Result<Box<Chat>> create(Session& session, const Tokenizer& tokenizer,
                                  const ChatOptions& options, const Allocator& allocator);

  Status set_system(const std::string_view* text);  // null: none
  Status add(std::string_view role, std::string_view content);
  /// A message in JSON (tools/message.h), which may have calls or be a result.
  /// MOE_ERR_UNSUPPORTED if it has calls and the template does not write them.
  Status add_message(std::string_view json);
  /// A list of tools in JSON, or empty for none. From now on the template gets them, and calls in
  /// replies are found. MOE_ERR_ARGUMENT for the list, MOE_ERR_UNSUPPORTED if the template has no
  /// tools or its calls no format that is known. What is "strict" is for the caller, who gives the
  /// options of a reply a grammar of calls.
  Status set_tools(std::string_view json);
  /// The errors of set_tools(). *none: there is no tool in the list.
  Status check_tools(std::string_view json, bool* none) const;
  /// The format of the template's calls; null: none that is known.
  const ToolFormat* tool_format() const { return format_; }
  Status truncate(size_t n_messages);  // retains the first n
  /// Removes the oldest turns, as few as possible, until the conversation with the beginning of a
  /// reply has at most max_tokens tokens. A turn is a message with the role "user" and those up to
  /// the next one; what comes before the first, and the last turn, are retained.
  /// MOE_ERR_TOO_LONG if the last turn is too long, MOE_ERR_TEXT if the template refuses what would
  /// remain, MOE_ERR_CANCELLED by Session::cancel(); then nothing changes. *n_removed: messages.
  Status remove_oldest(size_t max_tokens, size_t* n_removed);
  Status set_session(Session* session);  // of the same model; null: none
  std::span<const StoredMessage> messages() const { return messages_.span(); }

  /// begin_reply: append the beginning of the assistant's next message.
  Status render(bool begin_reply, ChatText& out) const { return render(begin_reply, {}, {}, out); }
  Status tokens(bool begin_reply, Array<int32_t>& ids) const;

  /// Evaluates what the session does not contain yet, generates, and appends the reply.
  /// MOE_ERR_TOO_LONG, with nothing changed, if the conversation fills the context.
  Status reply(const GenerateOptions& options, ChatReply* out);
  /// The same in steps: the session holds tokens(true), and the reply is not appended. The chat may
  /// be destroyed before it; its session and the caller's options may not.
  Result<Box<SteppedGeneration>> begin_reply(const GenerateOptions& options);

  /// For create() alone.
  Chat(Session& session, const Tokenizer& tokenizer, const Allocator& allocator);

 private:
  struct Variable {
    explicit Variable(const Allocator& a) : name(a), value(a) {}
    String name;
    String value;
  };
  Status init(const ChatOptions& options);
  Status add_variable(std::string_view name, std::string_view value);
  Status choose_thinking(Thinking thinking);
  Status choose_tokens(std::string_view turn_end);
  /// Messages [first, end) that are left out.
  struct Gap {
    size_t first = 0;
    size_t end = 0;
  };
  Status render(bool begin_reply, Gap gap, const jinja::Limits& limits, ChatText& out) const;
  Result<bool> fits_without(Gap gap, size_t max_tokens, const SessionState& state,
                            Status* why) const;
  size_t next_turn(size_t from) const;
  Status render_messages(std::span<const ChatMessage> messages, std::string_view tools,
                         bool begin_reply, const jinja::Limits& limits, ChatText& out) const;
  Status add_calls(const StoredMessage& m, Array<String>& texts, ChatMessage& out) const;
  Status name_result(String& members) const;
  Status choose_call_style();
  Status calls_written(CallStyle style, bool* written) const;
  Status encode(const ChatText& text, Array<int32_t>& ids) const;
  bool begins_inside(const ChatText& text) const;

  const Allocator& allocator_;
  const Model& model_;
  Session* session_;  // used only by reply() and remove_oldest(); null: none
  const Tokenizer& tokenizer_;
  Box<ChatTemplate> template_;
  ThinkingTags tags_;
  Array<Variable> variables_;
  String date_;
  String bos_;
  String eos_;
  Array<int32_t> stops_;  // end-of-text tokens besides the model's
  bool has_system_ = false;
  String system_;
  Array<StoredMessage> messages_;
  const ToolFormat* format_ = nullptr;
  String tools_;
  CallStyle style_;
  bool style_known_ = false;
  std::atomic<bool> busy_{false};
};

}  // namespace moe
