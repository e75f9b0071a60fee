// SPDX-License-Identifier: MIT
#pragma once
// A request of the API, read and checked.

#include <string>
#include <vector>

#include "src/serve/host.h"
#include "src/serve/json.h"

namespace moe_serve {

/// How the texts of a request are generated and answered.
struct Settings {
  moe_sampling sampling{};  // without its bias
  std::vector<moe_logit_bias> bias;
  std::vector<std::string> stop;
  int32_t max_tokens = 0;  // 0: until the context is full
  int32_t n = 1;           // texts for each prompt
  bool ignore_eos = false;
  bool logprobs = false;
  int32_t n_top = 0;  // of logprobs
  bool stream = false;
  bool stream_usage = false;
};

/// A request, read and checked.
struct Order {
  bool is_chat = false;
  Settings settings;
  std::vector<std::vector<int32_t>> prompts;
  Chat chat;  // of a conversation, without a session
};

/// Reads the body of a request for a chat completion or a completion. Throws Refusal, or CallError
/// where the request is not to blame.
Order read_order(const Host& host, moe_endpoint endpoint, std::string_view body);
/// The answer to a request for the tokens of a text or a conversation.
Json tokenize(const Host& host, std::string_view body);

}  // namespace moe_serve
