// SPDX-License-Identifier: MIT
// Writes the answers of OpenAI's chat completions and completions.

#include <utility>

#include "src/serve/answer.h"

namespace moe_serve {
namespace {

// Log-probabilities in the shape of completions.
Json completion_logprobs(const Made& made) {
  Json texts = Json::array();
  Json values = Json::array();
  Json tops = Json::array();
  for (const Json& token : made.tokens) {
    texts.push_back(token["token"]);
    values.push_back(token["logprob"]);
    Json top = Json::object();
    for (const Json& one : token["top_logprobs"]) {
      const auto text = one["token"].get<std::string>();
      if (!top.contains(text)) top[text] = one["logprob"];  // of equal texts the likeliest
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", texts}, {"token_logprobs", values}, {"top_logprobs", tops}};
}

const char* finish_name(const Text& text) {
  if (text.calls()) return "tool_calls";
  const bool stop = text.finish() == MOE_FINISH_EOS || text.finish() == MOE_FINISH_STOP;
  return stop ? "stop" : "length";
}

Json function_json(const ToolCall& call, const std::string& arguments) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", arguments}}}};
}

Json completions_usage(const Usage& usage) {
  return {{"prompt_tokens", usage.n_prompt},
          {"completion_tokens", usage.n_made},
          {"total_tokens", usage.n_prompt + usage.n_made},
          {"prompt_tokens_details", {{"cached_tokens", usage.n_cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.n_thinking}}}};
}

class CompletionsAnswer final : public Answer {
 public:
  CompletionsAnswer(AnswerHead head, const Settings& settings, size_t n_texts)
      : head_(std::move(head)), settings_(settings), n_calls_(n_texts), choices_(n_texts) {}

  Events begin(const Text& text, const Usage&) override {
    if (!is_chat()) return {};
    return {chunk({{"index", text.index()},
                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                   {"logprobs", nullptr},
                   {"finish_reason", nullptr}})};
  }

  Events add(const Text& text, const Made& made) override {
    Json choice = {{"index", text.index()}};
    if (is_chat()) {
      choice["delta"] = Json::object();
      if (!made.thinking.empty()) choice["delta"]["reasoning_content"] = made.thinking;
      if (!made.content.empty()) choice["delta"]["content"] = made.content;
    } else {
      choice["text"] = made.content;
    }
    choice["logprobs"] = logprobs(made);
    choice["finish_reason"] = nullptr;
    Events events;
    const bool only_calls = made.content.empty() && made.thinking.empty() && made.tokens.empty();
    if (!only_calls) events.push_back(chunk(std::move(choice)));
    for (const ToolCall& call : made.calls) add_call(events, text, call);
    return events;
  }

  Events end(const Text& text, const Usage& usage, bool all) override {
    Json choice = {{"index", text.index()}};
    if (is_chat()) {
      choice["delta"] = Json::object();
    } else {
      choice["text"] = "";
    }
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = finish_name(text);
    Events events = {chunk(std::move(choice))};
    events[0]["sampling"] = sampling_json(settings_);
    if (!all || !settings_.stream_usage) return events;
    events.push_back(head(true));
    events[1]["choices"] = Json::array();
    events[1]["usage"] = completions_usage(usage);
    return events;
  }

  Json failure(const Refusal& refusal) override { return refusal.json(head_.endpoint); }

  void take(const Text& text, Made made) override {
    Json choice = {{"index", text.index()}};
    if (is_chat()) {
      choice["message"] = {{"role", "assistant"}, {"content", made.content}};
      if (!made.thinking.empty()) choice["message"]["reasoning_content"] = made.thinking;
      if (!made.calls.empty() && made.content.empty()) choice["message"]["content"] = nullptr;
      for (const ToolCall& call : made.calls) {
        choice["message"]["tool_calls"].push_back(function_json(call, call.arguments));
      }
    } else {
      choice["text"] = made.content;
    }
    choice["logprobs"] = logprobs(made);
    choice["finish_reason"] = finish_name(text);
    choices_[static_cast<size_t>(text.index())] = std::move(choice);
  }

  Json whole(const Usage& usage) override {
    Json json = head(false);
    json["choices"] = Json::array();
    for (Json& choice : choices_) json["choices"].push_back(std::move(choice));
    json["usage"] = completions_usage(usage);
    json["sampling"] = sampling_json(settings_);
    return json;
  }

 private:
  bool is_chat() const { return head_.endpoint == MOE_ENDPOINT_CHAT; }

  Json head(bool of_chunk) const {
    const char* object = !is_chat() ? "text_completion"
                         : of_chunk ? "chat.completion.chunk"
                                    : "chat.completion";
    return {{"id", (is_chat() ? "chatcmpl-" : "cmpl-") + head_.digits},
            {"object", object},
            {"created", head_.created},
            {"model", head_.model},
            {"system_fingerprint", head_.fingerprint}};
  }

  // A call begins, and its arguments follow.
  void add_call(Events& events, const Text& text, const ToolCall& call) {
    Json begun = {{"index", n_calls_[static_cast<size_t>(text.index())]++}};
    const Json rest = {{"index", begun["index"]}, {"function", {{"arguments", call.arguments}}}};
    begun.update(function_json(call, ""));
    for (const Json& delta : {begun, rest}) {
      events.push_back(chunk({{"index", text.index()},
                              {"delta", {{"tool_calls", Json::array({delta})}}},
                              {"logprobs", nullptr},
                              {"finish_reason", nullptr}}));
    }
  }

  Json chunk(Json choice) const {
    Json json = head(true);
    json["choices"] = Json::array({std::move(choice)});
    return json;
  }

  Json logprobs(const Made& made) const {
    if (!settings_.logprobs) return nullptr;
    if (!is_chat()) return completion_logprobs(made);
    return {{"content", made.tokens}, {"refusal", nullptr}};
  }

  const AnswerHead head_;
  const Settings& settings_;
  std::vector<int> n_calls_;   // of each text in a stream
  std::vector<Json> choices_;  // of a whole answer
};

}  // namespace

std::unique_ptr<Answer> completions_answer(const AnswerHead& head, const Settings& settings,
                                           size_t n_texts) {
  return std::make_unique<CompletionsAnswer>(head, settings, n_texts);
}

}  // namespace moe_serve
