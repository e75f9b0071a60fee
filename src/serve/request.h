// SPDX-License-Identifier: MIT
#pragma once
// A request of the API, read and checked.

#include <string>
#include <string_view>
#include <vector>

#include "src/serve/settings.h"

namespace moe_serve {

/// A request, read and checked.
struct Order {
  moe_endpoint endpoint{};
  Settings settings;
  std::vector<std::vector<int32_t>> prompts;
  Chat chat;                   // of a conversation, without a session
  Json echo = Json::object();  // fields that the answer repeats
  Json request;                // as it was sent, for its receipt; null: there will be none
};

/// Reads the body of a request for an endpoint that generates. Throws Refusal, or CallError where
/// the request is not to blame.
Order read_order(const Host& host, moe_endpoint endpoint, std::string_view body);
/// The answer of an endpoint that counts tokens: those of a text or a conversation.
Json tokenize(const Host& host, moe_endpoint endpoint, std::string_view body);

// The readers of the endpoints. Each fills in what its API has: settings, prompts and chat.
void read_chat(const Host& host, const Json& request, Order& order);
void read_completion(const Host& host, const Json& request, Order& order);
void read_message(const Host& host, const Json& request, Order& order);
void read_response(const Host& host, const Json& request, Order& order);
/// The tokens of a request of /v1/messages/count_tokens.
std::vector<int32_t> message_tokens(const Host& host, const Json& request);

/// Refuses a prompt without tokens, or with too many. field: of the request.
void check_length(const Host& host, const std::vector<int32_t>& prompt, const char* field);
/// Refuses more log-probabilities than should be in memory until the answer is complete.
void check_logprobs(const Host& host, const Order& order, const char* field);

}  // namespace moe_serve
