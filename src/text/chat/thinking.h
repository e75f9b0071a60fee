// SPDX-License-Identifier: MIT
#pragma once
// Separates thinking from the answer while a reply is generated.

#include <string_view>

#include "src/base/string.h"
#include "src/text/tokenizer.h"

namespace moe {

/// Markup of a model's thinking.
struct ThinkingTags {
  std::string_view open = "<think>";
  std::string_view close = "</think>";
  bool named = false;     // the template contains `close`, so it handles thinking
  bool channels = false;  // "<|channel|>NAME<|message|>...<|end|>"; all but "final" is thinking
};

/// The tags in a template; <think> if it has none.
ThinkingTags thinking_tags(std::string_view chat_template);

/// A part of a reply.
struct ReplyPart {
  std::string_view raw;   // as generated, without tags
  std::string_view text;  // without the white space around tags
  bool thinking = false;
  bool call = false;  // the arguments of a call in a channel
};

/// Thinking comes first in a reply: later tags are plain text. Withholds text that could become a
/// tag. One thread.
class ReplySplitter final {
 public:
  /// inside: the prompt ends with the opening tag.
  ReplySplitter(const ThinkingTags& tags, const Tokenizer& tokenizer, bool inside,
                const Allocator& allocator);

  /// From now on the channels whose recipient is a function are calls of tools, not thinking.
  void find_calls() { calls_ = true; }
  /// Takes one more token (-1: none) and the text that it completed. *parts: valid until the next
  /// call.
  Status push(int32_t token, std::string_view text, std::span<const ReplyPart>* parts);
  /// At the end of the reply: the withheld text.
  std::span<const ReplyPart> finish();
  /// The tokens after which a channel's header begins, and the one that ends it; -1: none.
  std::span<const int32_t> header_begins() const { return header_begins_; }
  int32_t header_end() const { return message_; }
  /// The token that opens the thinking; -1: none, or the text of several.
  int32_t opening() const { return opening_; }
  bool thinking() const { return state_ == State::kThinking || state_ == State::kHeader; }
  /// Inside the arguments of a call, and the function's name.
  bool in_call() const { return state_ == State::kCall; }
  std::string_view recipient() const { return recipient_.view(); }

 private:
  enum class State : uint8_t { kStart, kThinking, kAnswer, kHeader, kCall };

  std::string_view start(std::string_view text);
  std::string_view think(std::string_view text);
  void emit(std::string_view text);
  void hold(std::string_view text) { held_ = text; }
  void switch_to(State state);
  void push_tagged(int32_t token, std::string_view text);
  Status push_channel(int32_t token, std::string_view text);
  bool begins_with_recipient(std::string_view text) const;
  Status read_recipient(std::string_view header);

  ThinkingTags tags_;
  bool tokens_ = false;  // the tags are special tokens without text
  int32_t open_ = -1;
  int32_t close_ = -1;
  int32_t opening_ = -1;
  int32_t message_ = -1;
  int32_t header_begins_[3] = {-1, -1, -1};  // <|channel|>, <|start|>, <|end|>
  State state_ = State::kStart;
  bool trim_ = false;   // following white space belongs to a tag
  bool named_ = false;  // the header names a channel
  bool cut_ = false;    // the header is longer than what is kept of it
  bool calls_ = false;
  bool first_ = true;  // of a reply in channels: nothing but the first header's beginning so far
  String header_;
  String recipient_;  // of the header, without "functions."
  String text_[2];    // of this call and the previous one
  int current_ = 0;
  std::string_view held_;  // end of the current text
  ReplyPart parts_[4];
  size_t n_parts_ = 0;
};

}  // namespace moe
