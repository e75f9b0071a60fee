// SPDX-License-Identifier: MIT
// Reads requests of OpenAI's responses.

#include "src/serve/conversation.h"
#include "src/serve/format.h"
#include "src/serve/refusal.h"
#include "src/serve/request.h"
#include "src/serve/tools.h"

namespace moe_serve {
namespace {

const Json* object_in(const Json& request, const char* field) {
  const auto at = request.find(field);
  if (at == request.end()) return nullptr;
  if (at->is_object()) return &*at;
  throw bad_field(field, "expected an object, found " + shown(*at));
}

// Thinking of earlier replies is left out: templates do not get it.
void add_item(const Host& host, const Json& item, const std::string& where,
              std::vector<Turn>& turns) {
  const std::string type = item.contains("type") ? text_in(item, "type", where) : "message";
  if (type == "reasoning") return;
  if (type == "function_call") {
    check_keys(item, where, {"type", "id", "call_id", "name", "arguments", "status"});
    const std::string arguments = text_in(item, "arguments", where);
    return add_calls(turns,
                     Json::array({earlier_call(text_in(item, "call_id", where),
                                               text_in(item, "name", where), arguments)}),
                     where);
  }
  if (type == "function_call_output") {
    check_keys(item, where, {"type", "id", "call_id", "output", "status"});
    const auto output = item.find("output");
    if (output == item.end()) throw missing_field(where + ".output");
    turns.push_back(result_turn(text_in(item, "call_id", where),
                                content_of(*output, where + ".output", {{"input_text"}, {}}),
                                where));
    return;
  }
  if (type != "message") {
    throw bad_field(where + ".type",
                    "expected message, reasoning, function_call or function_call_output, found '" +
                        type.substr(0, 40) + "'",
                    "unsupported_value");
  }
  check_keys(item, where, {"type", "role", "content", "id", "status", "phase"});
  const std::string role = role_of(host, text_in(item, "role", where), where);
  const auto content = item.find("content");
  if (content == item.end()) throw missing_field(where + ".content");
  turns.push_back({role, content_of(*content, where + ".content",
                                    {{role == "assistant" ? "output_text" : "input_text"}, {}})});
}

std::vector<Turn> input_turns(const Host& host, const Json& request) {
  std::vector<Turn> turns;
  if (request.contains("instructions")) {
    turns.push_back({"system", text_in(request, "instructions", "")});
  }
  if (request.contains("input") && request["input"].is_string()) {
    turns.push_back({"user", request["input"].get<std::string>()});
    return turns;
  }
  const size_t n_before = turns.size();
  size_t i = 0;
  for (const Json& item : messages_in(request, "input")) {
    add_item(host, item, "input[" + std::to_string(i++) + "]", turns);
  }
  if (turns.size() == n_before) throw bad_field("input", "there is no message");
  return turns;
}

void read_reasoning(const Json& request, ChatOptions& options) {
  const Json* reasoning = object_in(request, "reasoning");
  if (reasoning == nullptr) return;
  // A summary is of what the answer has in full.
  check_keys(*reasoning, "reasoning", {"effort", "summary", "generate_summary"});
  read_effort(*reasoning, "effort", "reasoning", options);
}

void read_text(const Host& host, const Json& request, Settings& s) {
  const Json* text = object_in(request, "text");
  if (text == nullptr) return;
  check_keys(*text, "text", {"format", "verbosity"});
  const Json format = text->value("format", Json());
  if (!format.is_null()) {
    s.grammar = read_format(host, format, "text.format", true);
    s.format = format;
  }
  const Json verbosity = text->value("verbosity", Json());
  if (verbosity.is_null() || verbosity == "medium") return;
  throw bad_field("text.verbosity", "not supported, found " + shown(verbosity),
                  "unsupported_value");
}

// Thinking is never encrypted: the answer has it in full.
void read_logprobs(const Json& request, Settings& s) {
  const auto include = request.find("include");
  const Json list = include == request.end() ? Json::array() : *include;
  if (!list.is_array()) throw bad_field("include", "expected a list, found " + shown(list));
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == "reasoning.encrypted_content") continue;
    if (list[i] != "message.output_text.logprobs") {
      throw bad_field("include[" + std::to_string(i) + "]",
                      "expected 'message.output_text.logprobs' or 'reasoning.encrypted_content', "
                      "found " +
                          shown(list[i]),
                      "unsupported_value");
    }
    s.logprobs = true;
  }
  s.n_top = static_cast<int32_t>(integer_of(request, "top_logprobs", 0, 20, 0));
  if (s.n_top > 0 && !s.logprobs) {
    throw bad_field("top_logprobs", "only with 'message.output_text.logprobs' in 'include'");
  }
}

}  // namespace

void read_response(const Host& host, const Json& request, Order& order) {
  check_fields(request, generating_fields({"input", "instructions", "max_output_tokens", "stop",
                                           "stream_options", "include", "top_logprobs", "reasoning",
                                           "text", "chat_template_kwargs", "tools", "tool_choice",
                                           "parallel_tool_calls"}));
  Settings& s = order.settings;
  s = read_settings(host, request);
  read_stream_options(request, false, s);
  s.max_tokens = tokens_of(request, "max_output_tokens", 0);
  s.stop = stops_of(host, request, "stop");
  read_logprobs(request, s);
  read_text(host, request, s);
  ChatOptions options{.list = "input"};
  read_reasoning(request, options);
  const ToolUse use = response_tools(request);
  options.tools = use;
  s.one_call = use.one_call;
  check_format_alone(s.grammar, use, "text.format");
  order.chat = conversation(host, request, input_turns(host, request), options);
  order.prompts.push_back(conversation_tokens(order.chat.get(), "input"));
  check_length(host, order.prompts[0], "input");
  check_logprobs(host, order, "top_logprobs");
  if (!use.list.empty()) order.echo = {{"parallel_tool_calls", true}, {"tool_choice", "auto"}};
  for (const char* field : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls",
                            "reasoning", "tool_choice", "tools", "user"}) {
    if (request.contains(field)) order.echo[field] = request[field];
  }
}

}  // namespace moe_serve
