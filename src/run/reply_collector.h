// SPDX-License-Identifier: MIT
#pragma once
// The parts of a chat's reply while it is generated. Private to src/run.

#include <optional>

#include "src/run/chat.h"

namespace moe {

/// Splits a reply into parts as it arrives, reports them and collects the text.
class Collector {
 public:
  Collector(const GenerateOptions& options, const ThinkingTags& tags, const Tokenizer& tokenizer,
            bool inside, const Allocator& allocator)
      : message(allocator),
        options_(options),
        tokenizer_(tokenizer),
        splitter_(tags, tokenizer, inside, allocator),
        spelled_(allocator),
        calls_(allocator),
        allocator_(allocator) {}

  /// Finds calls of the tools, a JSON list that must outlive this. seed: for the calls' ids.
  Status find_calls(const ToolFormat& format, std::string_view tools, uint64_t seed) {
    splitter_.find_calls();
    parser_.emplace(format, tools, seed, allocator_);
    format_ = &format;
    return calls_.assign("");
  }

  static bool call(void* user, const Piece& piece) {
    return static_cast<Collector*>(user)->take(piece);
  }

  ReplyHeaders headers() const { return {splitter_.header_begins(), splitter_.header_end()}; }
  int32_t n_calls() const { return parser_ ? parser_->n_calls() : 0; }

  Status finish(Finish* finish) {
    if (status_.ok() && !give(splitter_.finish(), {})) *finish = Finish::kCallback;
    if (status_.ok() && parser_) {
      Piece piece;
      status_ = parser_->finish();
      if (status_.ok() && !give_events(piece)) *finish = Finish::kCallback;
      if (status_.ok() && n_calls() > 0) status_ = finish_calls();
    }
    return status_;
  }

  StoredMessage message;
  int32_t n_thinking = 0;

 private:
  bool take(const Piece& piece) {
    if (!status_.ok()) return false;
    const bool before = splitter_.thinking();
    const bool in_call = splitter_.in_call();
    std::span<const ReplyPart> parts;
    std::string_view text = piece.text;
    if (is_mark(piece.token) && !before) {
      status_ = spell(piece);
      text = spelled_.view();
    }
    if (status_.ok()) status_ = splitter_.push(piece.token, text, &parts);
    if (!status_.ok()) return false;
    if (piece.token >= 0 && (before || splitter_.thinking())) ++n_thinking;
    const bool go_on = give(parts, piece);
    if (!parser_ || !status_.ok() || in_call == splitter_.in_call()) return go_on;
    status_ = in_call ? parser_->end_call() : parser_->begin_call(splitter_.recipient());
    Piece rest;  // the token has been reported
    return status_.ok() && give_events(rest) && go_on;
  }

  // A mark of the format that is a special token: it has no text of its own.
  bool is_mark(int32_t token) const {
    if (!parser_ || token < 0 || !tokenizer_.is_special(token)) return false;
    const std::string_view piece = tokenizer_.piece(token);
    for (const std::string_view mark : format_->marks) {
      if (!piece.empty() && piece == mark) return true;
    }
    return false;
  }

  Status spell(const Piece& piece) {
    MOE_TRY(spelled_.assign(piece.text));
    return spelled_.append(tokenizer_.piece(piece.token));
  }

  // Reports each token once, with the first text it completes.
  bool give(std::span<const ReplyPart> parts, Piece piece) {
    const bool has_token = piece.token >= 0;
    piece.text = {};
    piece.thinking = splitter_.thinking();
    bool go_on = true;
    given_ = false;
    for (const ReplyPart& part : parts) {
      if (parser_ && !part.thinking) {
        status_ = find_in(part);
        if (!status_.ok()) return false;
        go_on = give_events(piece) && go_on;
        continue;
      }
      status_ = keep(part);
      if (!status_.ok()) return false;
      if (part.text.empty()) continue;
      piece.text = part.text;
      piece.thinking = part.thinking;
      go_on = call_back(piece) && go_on;
    }
    if (!given_ && has_token) go_on = call_back(piece) && go_on;
    return go_on;
  }

  // White space behind a tag stays in the message, and is nothing for the parser.
  Status find_in(const ReplyPart& part) {
    const size_t skip = part.raw.size() - part.text.size();
    if (message.content_skip == message.content.size()) message.content_skip += skip;
    MOE_TRY(message.content.append(slice(part.raw, 0, skip)));
    return parser_->push(part.text);
  }

  bool give_events(Piece& piece) {
    bool go_on = true;
    for (size_t i = 0; i < parser_->n_events() && status_.ok(); ++i) {
      const ToolCallParser::Event event = parser_->event(i);
      status_ = event.call ? keep_call(event.text) : message.content.append(event.text);
      piece.text = event.text;
      piece.thinking = false;
      piece.call = event.call;
      go_on = status_.ok() && call_back(piece) && go_on;
    }
    return go_on;
  }

  // {"id": I, "name": N, "arguments": A} as {"id": I, "type": "function", "function": {...}}.
  Status keep_call(std::string_view call) {
    const size_t name = call.find(", \"name\": ");
    MOE_TRY(calls_.append(calls_.empty() ? "{\"tool_calls\": [" : ", "));
    MOE_TRY(calls_.append(slice(call, 0, name)));
    MOE_TRY(calls_.append(", \"type\": \"function\", \"function\": {"));
    MOE_TRY(calls_.append(slice(call, name + 2)));
    return calls_.append("}");
  }

  Status finish_calls() {
    MOE_TRY(calls_.append("]}"));
    message.members = std::move(calls_);
    message.calls = true;
    message.no_content = message.shown_content().empty();
    return {};
  }

  // Once it has returned false, the rest of the text is only kept. The token is reported once.
  bool call_back(Piece& piece) {
    stopped_ =
        stopped_ || (options_.callback != nullptr && !options_.callback(options_.user, piece));
    given_ = true;
    piece = {};
    return !stopped_;
  }

  Status keep(const ReplyPart& part) {
    String& to = part.thinking ? message.thinking : message.content;
    size_t& skip = part.thinking ? message.thinking_skip : message.content_skip;
    if (skip == to.size()) skip += part.raw.size() - part.text.size();
    return to.append(part.raw);
  }

  const GenerateOptions& options_;
  const Tokenizer& tokenizer_;
  ReplySplitter splitter_;
  std::optional<ToolCallParser> parser_;  // in a chat with tools
  const ToolFormat* format_ = nullptr;
  String spelled_;
  String calls_;  // as the member tool_calls, without its end
  const Allocator& allocator_;
  Status status_;
  bool given_ = false;    // the token was reported
  bool stopped_ = false;  // by the callback
};

}  // namespace moe
