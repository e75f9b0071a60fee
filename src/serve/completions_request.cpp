// SPDX-License-Identifier: MIT
// Reads requests of OpenAI's chat completions and completions.

#include "src/serve/conversation.h"
#include "src/serve/format.h"
#include "src/serve/input_texts.h"
#include "src/serve/refusal.h"
#include "src/serve/request.h"
#include "src/serve/tools.h"

namespace moe_serve {
namespace {

Fields fields_with(const Fields& own) {
  Fields fields = {"stream_options", "max_tokens", "stop", "n", "logprobs"};
  fields.insert(fields.end(), own.begin(), own.end());
  return generating_fields(fields);
}

// otherwise: the API's own default.
void read_common(const Host& host, const Json& request, int64_t otherwise, Settings& s) {
  s = read_settings(host, request);
  read_stream_options(request, true, s);
  if (request.contains("max_tokens") && request.contains("max_completion_tokens")) {
    throw bad_field("max_completion_tokens", "the same as 'max_tokens'; give one of them");
  }
  s.max_tokens = tokens_of(request, "max_tokens", otherwise);
  s.max_tokens = tokens_of(request, "max_completion_tokens", s.max_tokens);
  s.stop = stops_of(host, request, "stop");
  s.n = static_cast<int32_t>(integer_of(request, "n", 1, kMostTexts, 1));
}

}  // namespace

// In a chat "logprobs" is a switch and "top_logprobs" a number; in a completion "logprobs" is both.
void read_chat(const Host& host, const Json& request, Order& order) {
  check_fields(request, fields_with({"messages", "max_completion_tokens", "top_logprobs",
                                     "chat_template_kwargs", "reasoning_effort", "response_format",
                                     "tools", "tool_choice", "parallel_tool_calls"}));
  Settings& s = order.settings;
  read_common(host, request, 0, s);
  s.logprobs = flag_of(request, "logprobs", false);
  s.n_top = static_cast<int32_t>(integer_of(request, "top_logprobs", 0, 20, 0));
  if (s.n_top > 0 && !s.logprobs) throw bad_field("top_logprobs", "only with 'logprobs': true");
  const auto format = request.find("response_format");
  if (format != request.end()) s.grammar = read_format(host, *format, "response_format", false);
  ChatOptions options{.list = "messages"};
  read_effort(request, "reasoning_effort", "", options);
  const ToolUse use = chat_tools(request);
  options.tools = use;
  s.one_call = use.one_call;
  check_format_alone(s.grammar, use, "response_format");
  order.chat = conversation(host, request, chat_turns(host, request), options);
  order.prompts.push_back(conversation_tokens(order.chat.get(), "messages"));
  check_length(host, order.prompts[0], "messages");
  if (!s.stream) check_logprobs(host, order, "top_logprobs");
}

void read_completion(const Host& host, const Json& request, Order& order) {
  check_fields(request, fields_with({"prompt"}));
  Settings& s = order.settings;
  read_common(host, request, 16, s);
  const auto logprobs = request.find("logprobs");
  s.logprobs = logprobs != request.end() && *logprobs != false;
  if (s.logprobs) s.n_top = static_cast<int32_t>(integer_of(request, "logprobs", 0, 20, 0));
  order.prompts = tokens_of_texts(host, request, {.field = "prompt", .most = kMostTexts});
  for (const auto& prompt : order.prompts) check_length(host, prompt, "prompt");
  if (static_cast<int64_t>(order.prompts.size()) * s.n > kMostTexts) {
    throw bad_field(order.prompts.size() > 1 ? "prompt" : "n",
                    "expected at most " + std::to_string(kMostTexts) + " texts in all");
  }
  if (!s.stream) check_logprobs(host, order, "logprobs");
}

}  // namespace moe_serve
