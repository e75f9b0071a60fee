// SPDX-License-Identifier: MIT
#pragma once
// The parts of a chat's reply while it is generated. Private to src/run.

#include "src/run/chat.h"

namespace moe {

/// Splits a reply into parts as it arrives, reports them and collects the text.
class Collector {
 public:
  Collector(const GenerateOptions& options, const ThinkingTags& tags, const Tokenizer& tokenizer,
            bool inside, const Allocator& allocator)
      : message(allocator), options_(options), splitter_(tags, tokenizer, inside, allocator) {}

  static bool call(void* user, const Piece& piece) {
    return static_cast<Collector*>(user)->take(piece);
  }

  ReplyHeaders headers() const { return {splitter_.header_begins(), splitter_.header_end()}; }

  Status finish(Finish* finish) {
    if (status_.ok() && !give(splitter_.finish(), {})) *finish = Finish::kCallback;
    return status_;
  }

  StoredMessage message;
  int32_t n_thinking = 0;

 private:
  bool take(const Piece& piece) {
    if (!status_.ok()) return false;
    const bool before = splitter_.thinking();
    std::span<const ReplyPart> parts;
    status_ = splitter_.push(piece.token, piece.text, &parts);
    if (!status_.ok()) return false;
    if (piece.token >= 0 && (before || splitter_.thinking())) ++n_thinking;
    return give(parts, piece);
  }

  // Reports each token once, with the first text it completes.
  bool give(std::span<const ReplyPart> parts, Piece piece) {
    const bool has_token = piece.token >= 0;
    piece.text = {};
    piece.thinking = splitter_.thinking();
    bool go_on = true;
    bool given = false;
    for (const ReplyPart& part : parts) {
      status_ = keep(part);
      if (!status_.ok()) return false;
      if (part.text.empty()) continue;
      piece.text = part.text;
      piece.thinking = part.thinking;
      go_on = call_back(piece) && go_on;
      given = true;
      piece = {};
    }
    if (!given && has_token) go_on = call_back(piece) && go_on;
    return go_on;
  }

  // Once it has returned false, the rest of the text is only kept.
  bool call_back(const Piece& piece) {
    stopped_ =
        stopped_ || (options_.callback != nullptr && !options_.callback(options_.user, piece));
    return !stopped_;
  }

  Status keep(const ReplyPart& part) {
    String& to = part.thinking ? message.thinking : message.content;
    size_t& skip = part.thinking ? message.thinking_skip : message.content_skip;
    if (skip == to.size()) skip += part.raw.size() - part.text.size();
    return to.append(part.raw);
  }

  const GenerateOptions& options_;
  ReplySplitter splitter_;
  Status status_;
  bool stopped_ = false;  // by the callback
};

}  // namespace moe
