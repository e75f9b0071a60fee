// SPDX-License-Identifier: MIT
#pragma once
// The gate of a chat's reply: a grammar holds for the answer, not for the thinking. Private to
// src/run.

#include "src/run/generate.h"
#include "src/text/chat/thinking.h"

namespace moe {

/// Reads a reply like a Collector, but before stop strings withhold text.
class ThinkingGate {
 public:
  ThinkingGate(const ThinkingTags& tags, const Tokenizer& tokenizer, bool inside,
               const Allocator& allocator)
      : splitter_(tags, tokenizer, inside, allocator),
        state_(inside ? AnswerGate::kClosed : AnswerGate::kStart) {
    const std::span<const int32_t> headers = splitter_.header_begins();
    opening_ = tags.channels ? headers[0] : splitter_.opening();
  }

  AnswerGate gate() { return {.push = push, .state = state, .object = this, .opening = opening_}; }

 private:
  static Status push(void* object, int32_t token, std::string_view text, std::string_view* answer) {
    return static_cast<ThinkingGate*>(object)->take(token, text, answer);
  }
  static AnswerGate::State state(const void* object) {
    return static_cast<const ThinkingGate*>(object)->state_;
  }

  Status take(int32_t token, std::string_view text, std::string_view* answer) {
    std::span<const ReplyPart> parts;
    MOE_TRY(splitter_.push(token, text, &parts));
    *answer = {};
    if (!parts.empty() && !parts.back().thinking) *answer = parts.back().text;
    state_ = splitter_.thinking() ? AnswerGate::kClosed : AnswerGate::kOpen;
    return {};
  }

  ReplySplitter splitter_;
  AnswerGate::State state_;
  int32_t opening_ = -1;
};

}  // namespace moe
