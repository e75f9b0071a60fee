#pragma once
// Tells what a model thinks from what it answers, while the reply is being made.

#include <string_view>

#include "src/base/string.h"
#include "src/text/tokenizer.h"

namespace moe {

/// How a model marks its thinking.
struct ThinkingTags {
  std::string_view open = "<think>";
  std::string_view close = "</think>";
  bool named = false;     // the template has `close`: it knows what to do with thinking
  bool channels = false;  // "<|channel|>NAME<|message|>...<|end|>"; all but "final" is thinking
};

/// The tags that a template names; <think> when it names none.
ThinkingTags thinking_tags(std::string_view chat_template);

/// A part of a reply.
struct ReplyPart {
  std::string_view raw;   // as the model wrote it, without tags
  std::string_view text;  // without the white space around tags
  bool thinking = false;
};

/// Thinking stands at the beginning of a reply: tags that come later are text. What may become a
/// tag is held back. One thread.
class ReplySplitter final {
 public:
  /// inside: the prompt ends with the opening tag.
  ReplySplitter(const ThinkingTags& tags, const Tokenizer& tokenizer, bool inside,
                const Allocator& allocator);

  /// One more token (-1: none) and the text that became known with it. *parts: valid until the next
  /// call.
  Status push(int32_t token, std::string_view text, std::span<const ReplyPart>* parts);
  /// The reply is over: what was held back.
  std::span<const ReplyPart> finish();
  bool thinking() const { return state_ == State::kThinking || state_ == State::kHeader; }

 private:
  enum class State : uint8_t { kStart, kThinking, kAnswer, kHeader };

  std::string_view start(std::string_view text);
  std::string_view think(std::string_view text);
  void emit(std::string_view text);
  void hold(std::string_view text) { held_ = text; }
  void switch_to(State state);
  void push_tagged(int32_t token, std::string_view text);
  Status push_channel(int32_t token, std::string_view text);

  ThinkingTags tags_;
  bool tokens_ = false;  // the tags are special tokens, which have no text
  int32_t open_ = -1;
  int32_t close_ = -1;
  int32_t channel_ = -1;
  int32_t message_ = -1;
  int32_t begin_ = -1;
  int32_t end_ = -1;
  State state_ = State::kStart;
  bool trim_ = false;   // white space that comes next follows a tag
  bool named_ = false;  // the header names a channel
  String header_;
  String text_[2];  // of this call, and of the one before
  int current_ = 0;
  std::string_view held_;  // end of the current text
  ReplyPart parts_[4];
  size_t n_parts_ = 0;
};

}  // namespace moe
