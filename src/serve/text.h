// SPDX-License-Identifier: MIT
#pragma once
// One text of a request while it is generated.

#include <string>
#include <vector>

#include "src/serve/host.h"
#include "src/serve/json.h"
#include "src/serve/request.h"
#include "src/serve/tools.h"

namespace moe_serve {

/// The part of a text generated since the last event, or all of it.
struct Made {
  std::string content;
  std::string thinking;
  Json tokens = Json::array();  // log-probabilities: objects of chat completions
  size_t n_thinking = 0;        // of these, at the beginning
  std::vector<ToolCall> calls;  // in their order

  bool empty() const {
    return content.empty() && thinking.empty() && tokens.empty() && calls.empty();
  }
  /// The content with the calls in their places: on_text(part) and on_call(call) in turn.
  template <class OnText, class OnCall>
  void each_part(OnText&& on_text, OnCall&& on_call) const {
    size_t at = 0;
    for (const ToolCall& call : calls) {
      on_text(content.substr(at, call.at - at));
      on_call(call);
      at = call.at;
    }
    on_text(content.substr(at));
  }
};

/// Used by the thread of the scheduler alone.
class Text {
 public:
  Text(const Host& host, const Settings& settings, std::vector<int32_t> prompt, int index);

  /// Begins to generate after the prompt, which the session holds. chat: null for a completion.
  void begin(moe_session* session, moe_chat* chat);
  /// Samples one token and takes what it gives. False at the end.
  bool next();
  /// Evaluates next_token() with a draft of those after it, and goes on as if next() had been
  /// called for each. False at the end.
  bool advance();
  /// The part generated since the last call.
  Made take();

  const std::vector<int32_t>& prompt() const { return prompt_; }
  int index() const { return index_; }
  int32_t next_token() const { return next_; }
  bool drafts() const { return settings_.max_draft > 0; }
  uint64_t seed() const { return seed_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int32_t n_made() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t n_thinking() const { return n_thinking_; }
  /// Whether it has called tools and ended as it should: the caller is to answer the calls.
  bool calls() const {
    return n_calls_ > 0 && finish_ != MOE_FINISH_LENGTH && finish_ != MOE_FINISH_CONTEXT;
  }
  /// Why it ended, and at which of the request's stop texts; null: at none.
  moe_finish finish() const { return finish_; }
  const std::string* stop() const { return stop_; }
  void release() { generation_.reset(); }

 private:
  bool took(moe_status status, const moe_error& error);
  static bool take_piece(void* user, const moe_piece* piece);
  void add(const moe_piece& piece);

  const Host& host_;
  const Settings& settings_;
  const std::vector<int32_t> prompt_;
  const int index_;  // among those of the request
  const uint64_t seed_;
  Generation generation_;
  Made made_;
  std::vector<int32_t> tokens_;  // generated
  int32_t next_ = -1;            // to be evaluated
  int32_t n_thinking_ = 0;
  int32_t n_calls_ = 0;
  moe_finish finish_{};
  const std::string* stop_ = nullptr;
  bool out_of_memory_ = false;
};

}  // namespace moe_serve
