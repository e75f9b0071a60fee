// SPDX-License-Identifier: MIT
// Reads requests, each by the reader of its endpoint, and checks what all endpoints limit.
#include "src/serve/request.h"

#include <algorithm>
#include <utility>

#include "src/serve/conversation.h"
#include "src/serve/refusal.h"
#include "src/serve/tools.h"

namespace moe_serve {
namespace {

std::vector<int32_t> tokens_to_count(const Host& host, const Json& request) {
  check_fields(request,
               {"model", "prompt", "messages", "add_special_tokens", "chat_template_kwargs",
                "reasoning_effort", "tools", "tool_choice", "parallel_tool_calls"});
  check_model(host, request);
  if (request.contains("prompt") == request.contains("messages")) {
    throw Refusal(kBadRequest, "expected one of 'prompt' and 'messages'", "prompt",
                  "missing_required_parameter");
  }
  if (request.contains("messages")) {
    ChatOptions options{.list = "messages"};
    read_effort(request, "reasoning_effort", "", options);
    options.tools = free_of_form(chat_tools(request));
    const Chat chat = conversation(host, request, chat_turns(host, request), options);
    return conversation_tokens(chat.get(), "messages");
  }
  const Json& prompt = request["prompt"];
  if (!prompt.is_string()) throw bad_field("prompt", "expected a text, found " + shown(prompt));
  if (host.tokenizer == nullptr) throw bad_field("prompt", "the model has no tokenizer");
  const bool special = flag_of(request, "add_special_tokens", true);
  return host.encode(prompt.get<std::string>(), special ? 0 : uint32_t{MOE_ENCODE_NO_SPECIAL});
}

}  // namespace

void check_length(const Host& host, const std::vector<int32_t>& prompt, const char* field) {
  if (prompt.empty()) throw bad_field(field, "the text has no tokens");
  if (prompt.size() <= static_cast<size_t>(host.max_prompt)) return;
  throw Refusal(kBadRequest,
                "'" + std::string(field) + "': expected at most " +
                    std::to_string(host.max_prompt) + " tokens, found " +
                    std::to_string(prompt.size()),
                field, "context_length_exceeded");
}

void check_logprobs(const Host& host, const Order& order, const char* field) {
  const Settings& s = order.settings;
  if (!s.logprobs) return;
  constexpr int64_t kMost = 1 << 18;
  const int64_t texts = static_cast<int64_t>(order.prompts.size()) * s.n;
  const int64_t each = s.max_tokens > 0 ? std::min(s.max_tokens, host.context) : host.context;
  if (texts * each * (s.n_top + 1) <= kMost) return;
  const bool streams_forget = order.endpoint != MOE_ENDPOINT_RESPONSES;
  throw bad_field(field, "too many for one answer (texts x tokens x (1 + top) above " +
                             std::to_string(kMost) + "): ask for fewer" +
                             (streams_forget ? ", or for a stream" : ""));
}

Order read_order(const Host& host, moe_endpoint endpoint, std::string_view body) {
  Json request = parse_body(body);
  Order order;
  order.endpoint = endpoint;
  switch (endpoint) {
    case MOE_ENDPOINT_CHAT:
      read_chat(host, request, order);
      break;
    case MOE_ENDPOINT_MESSAGES:
      read_message(host, request, order);
      break;
    case MOE_ENDPOINT_RESPONSES:
      read_response(host, request, order);
      break;
    default:
      read_completion(host, request, order);
  }
  if (order.settings.receipt || host.receipt != nullptr) order.request = std::move(request);
  return order;
}

Json tokenize(const Host& host, moe_endpoint endpoint, std::string_view body) {
  const Json request = parse_body(body);
  if (endpoint == MOE_ENDPOINT_COUNT_TOKENS) {
    return {{"input_tokens", message_tokens(host, request).size()}};
  }
  const std::vector<int32_t> tokens = tokens_to_count(host, request);
  return {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", host.context}};
}

}  // namespace moe_serve
