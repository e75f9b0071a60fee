// SPDX-License-Identifier: MIT
// Writes answers, chunks of streams and errors as JSON in the API's shapes.
#include "src/serve/answer.h"

#include <charconv>
#include <utility>

namespace moe_serve {
namespace {

Json head_json(const AnswerHead& head, bool chunk) {
  const char* object = !head.is_chat ? "text_completion"
                       : chunk       ? "chat.completion.chunk"
                                     : "chat.completion";
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

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

Json logprobs_json(const AnswerHead& head, const Settings& settings, const Made& made) {
  if (!settings.logprobs) return nullptr;
  if (!head.is_chat) return completion_logprobs(made);
  return {{"content", made.tokens}, {"refusal", nullptr}};
}

Json chunk_json(const AnswerHead& head, Json choice) {
  Json json = head_json(head, true);
  json["choices"] = Json::array({std::move(choice)});
  return json;
}

// As people write it: 0.95, not the nearest float's 0.949999988.
double short_number(float value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

}  // namespace

Json Usage::json() const {
  return {{"prompt_tokens", n_prompt},
          {"completion_tokens", n_made},
          {"total_tokens", n_prompt + n_made},
          {"prompt_tokens_details", {{"cached_tokens", n_cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", n_thinking}}}};
}

Json sampling_json(const Settings& settings) {
  const moe_sampling& s = settings.sampling;
  return {{"temperature", short_number(s.temperature)},
          {"top_k", s.top_k},
          {"top_p", short_number(s.top_p)},
          {"min_p", short_number(s.min_p)},
          {"repetition_penalty", short_number(s.repetition_penalty)},
          {"seed", s.seed}};
}

Json choice_json(const AnswerHead& head, const Settings& settings, const Text& text,
                 const Made& made) {
  Json choice = {{"index", text.index()}};
  if (head.is_chat) {
    choice["message"] = {{"role", "assistant"}, {"content", made.content}};
    if (!made.thinking.empty()) choice["message"]["reasoning_content"] = made.thinking;
  } else {
    choice["text"] = made.content;
  }
  choice["logprobs"] = logprobs_json(head, settings, made);
  choice["finish_reason"] = text.finish();
  return choice;
}

Json answer_json(const AnswerHead& head, const Settings& settings, Json choices,
                 const Usage& usage) {
  Json json = head_json(head, false);
  json["choices"] = std::move(choices);
  json["usage"] = usage.json();
  json["sampling"] = sampling_json(settings);
  return json;
}

Json role_chunk(const AnswerHead& head, int index) {
  return chunk_json(head, {{"index", index},
                           {"delta", {{"role", "assistant"}, {"content", ""}}},
                           {"logprobs", nullptr},
                           {"finish_reason", nullptr}});
}

Json text_chunk(const AnswerHead& head, const Settings& settings, int index, const Made& made) {
  Json choice = {{"index", index}};
  if (head.is_chat) {
    choice["delta"] = Json::object();
    if (!made.thinking.empty()) choice["delta"]["reasoning_content"] = made.thinking;
    if (!made.content.empty()) choice["delta"]["content"] = made.content;
  } else {
    choice["text"] = made.content;
  }
  choice["logprobs"] = logprobs_json(head, settings, made);
  choice["finish_reason"] = nullptr;
  return chunk_json(head, std::move(choice));
}

Json finish_chunk(const AnswerHead& head, const Settings& settings, const Text& text) {
  Json choice = {{"index", text.index()}};
  if (head.is_chat) {
    choice["delta"] = Json::object();
  } else {
    choice["text"] = "";
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = text.finish();
  Json json = chunk_json(head, std::move(choice));
  json["sampling"] = sampling_json(settings);
  return json;
}

Json usage_chunk(const AnswerHead& head, const Usage& usage) {
  Json json = head_json(head, true);
  json["choices"] = Json::array();
  json["usage"] = usage.json();
  return json;
}

}  // namespace moe_serve
