// SPDX-License-Identifier: MIT
// Knows the tags and channels by which models mark thinking, and splits a reply at them as it
// arrives.
#include "src/text/chat/thinking.h"

#include <algorithm>

namespace moe {
namespace {

constexpr ThinkingTags kTags[] = {
    {"<think>", "</think>"},           {"[THINK]", "[/THINK]"},
    {"<thinking>", "</thinking>"},     {"<thought>", "</thought>"},
    {"<seed:think>", "</seed:think>"}, {"<|START_THINKING|>", "<|END_THINKING|>"}};

constexpr size_t kLongestHeader = 256;
constexpr std::string_view kRecipient = "to=functions.";
constexpr std::string_view kHeaderBegins[] = {"<|channel|>", "<|start|>", "<|end|>"};

size_t leading_space(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && (text[n] == ' ' || (text[n] >= '\t' && text[n] <= '\r'))) ++n;
  return n;
}

int32_t special_id(const Tokenizer& tokenizer, std::string_view piece) {
  const int32_t id = tokenizer.token_id(piece);
  return id >= 0 && tokenizer.is_special(id) ? id : -1;
}

}  // namespace

ThinkingTags thinking_tags(std::string_view chat_template) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  ThinkingTags tags;
  if (has("<|channel|>") && has("<|message|>")) {
    tags.channels = true;
    return tags;
  }
  for (const ThinkingTags& t : kTags) {
    if (!has(t.open) && !has(t.close)) continue;
    tags = t;
    tags.named = has(t.close);
    return tags;
  }
  return tags;
}

ReplySplitter::ReplySplitter(const ThinkingTags& tags, const Tokenizer& tokenizer, bool inside,
                             const Allocator& allocator)
    : tags_(tags),
      header_(allocator),
      recipient_(allocator),
      text_{String(allocator), String(allocator)} {
  if (tags.channels) {
    message_ = special_id(tokenizer, "<|message|>");
    for (int i = 0; i < 3; ++i) header_begins_[i] = special_id(tokenizer, kHeaderBegins[i]);
    state_ = State::kAnswer;  // until a channel is named
    return;
  }
  open_ = special_id(tokenizer, tags.open);
  close_ = special_id(tokenizer, tags.close);
  tokens_ = close_ >= 0;
  opening_ = tokens_ ? open_ : tokenizer.token_id(tags.open);
  if (inside) switch_to(State::kThinking);
}

void ReplySplitter::switch_to(State state) {
  state_ = state;
  trim_ = true;
}

void ReplySplitter::emit(std::string_view text) {
  if (text.empty()) return;
  const size_t skip = trim_ ? leading_space(text) : 0;
  trim_ = trim_ && skip == text.size();
  parts_[n_parts_++] = {text, slice(text, skip), state_ == State::kThinking,
                        state_ == State::kCall};
}

// White space may precede the opening tag. Returns the text after the tag.
std::string_view ReplySplitter::start(std::string_view text) {
  const std::string_view word = slice(text, leading_space(text));
  if (!tokens_ && word.starts_with(tags_.open)) {
    switch_to(State::kThinking);
    return slice(word, tags_.open.size());
  }
  if (word.empty() || (!tokens_ && tags_.open.starts_with(word))) {
    hold(text);
    return {};
  }
  state_ = State::kAnswer;
  return text;
}

std::string_view ReplySplitter::think(std::string_view text) {
  if (tokens_) {
    emit(text);
    return {};
  }
  const size_t at = text.find(tags_.close);
  if (at == std::string_view::npos) {
    const size_t n_given = text.size() - begun(text, tags_.close);
    emit(slice(text, 0, n_given));
    hold(slice(text, n_given));
    return {};
  }
  emit(slice(text, 0, at));
  switch_to(State::kAnswer);
  return slice(text, at + tags_.close.size());
}

void ReplySplitter::push_tagged(int32_t token, std::string_view text) {
  if (state_ == State::kStart) text = start(text);
  if (state_ == State::kThinking) text = think(text);
  if (state_ == State::kAnswer) emit(text);
  if (!tokens_ || token < 0) return;
  // Text that arrived with a tag's token precedes it.
  if (token == open_ && state_ == State::kStart) {
    held_ = {};
    switch_to(State::kThinking);
  } else if (token == close_ && state_ == State::kThinking) {
    switch_to(State::kAnswer);
  }
}

// The first header of a reply has begun before it: " to=functions.f<|channel|>...".
bool ReplySplitter::begins_with_recipient(std::string_view text) const {
  const std::string_view word = slice(text, leading_space(text));
  return calls_ && first_ && word.size() < kLongestHeader &&
         (kRecipient.starts_with(word) || word.starts_with(kRecipient));
}

Status ReplySplitter::read_recipient(std::string_view header) {
  const size_t at = header.find(kRecipient);
  if (!calls_ || cut_ || at == std::string_view::npos) return {};
  const std::string_view name = slice(header, at + kRecipient.size());
  size_t n = 0;
  while (n < name.size() && leading_space(slice(name, n)) == 0) ++n;
  return recipient_.assign(slice(name, 0, n));
}

Status ReplySplitter::push_channel(int32_t token, std::string_view text) {
  const bool begins =
      token >= 0 && std::find(header_begins_, header_begins_ + 3, token) != header_begins_ + 3;
  if (state_ != State::kHeader && begins) recipient_.clear();
  const bool ends = token >= 0 && token == message_;
  if (state_ == State::kAnswer && !ends && begins_with_recipient(text)) {
    if (!begins) {
      hold(text);
      return {};
    }
    MOE_TRY(read_recipient(text));
    if (recipient_.empty()) emit(text);
  } else if (state_ != State::kHeader) {
    emit(text);
  } else {
    if (header_.size() == 0) text = slice(text, leading_space(text));
    const size_t n = std::min(text.size(), kLongestHeader - header_.size());
    cut_ = cut_ || n < text.size();
    MOE_TRY(header_.append(slice(text, 0, n)));
  }
  first_ = false;
  if (begins) {
    if (state_ == State::kHeader) MOE_TRY(read_recipient(header_.view()));
    state_ = State::kHeader;
    cut_ = false;
    named_ = token == header_begins_[0];
    header_.clear();
  } else if (ends && state_ == State::kHeader) {
    const bool final = !named_ || header_.view() == "final";
    MOE_TRY(read_recipient(header_.view()));
    switch_to(!recipient_.empty() ? State::kCall : final ? State::kAnswer : State::kThinking);
  }
  return {};
}

Status ReplySplitter::push(int32_t token, std::string_view text,
                           std::span<const ReplyPart>* parts) {
  *parts = {};
  n_parts_ = 0;
  String& now = text_[1 - current_];
  MOE_TRY(now.assign(held_));
  MOE_TRY(now.append(text));
  current_ = 1 - current_;
  held_ = {};
  if (tags_.channels) {
    MOE_TRY(push_channel(token, now.view()));
  } else {
    push_tagged(token, now.view());
  }
  *parts = {parts_, n_parts_};
  return {};
}

std::span<const ReplyPart> ReplySplitter::finish() {
  n_parts_ = 0;
  if (state_ == State::kStart) state_ = State::kAnswer;
  emit(held_);
  held_ = {};
  return {parts_, n_parts_};
}

}  // namespace moe
