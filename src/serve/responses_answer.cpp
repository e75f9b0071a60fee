// SPDX-License-Identifier: MIT
// Writes the answers of OpenAI's responses: a list of items, one of thinking and one of text.

#include <utility>

#include "src/serve/answer.h"

namespace moe_serve {
namespace {

Json responses_usage(const Usage& usage) {
  return {{"input_tokens", usage.n_prompt},
          {"input_tokens_details", {{"cached_tokens", usage.n_cached}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.n_made},
          {"output_tokens_details", {{"reasoning_tokens", usage.n_thinking}}},
          {"total_tokens", usage.n_prompt + usage.n_made}};
}

constexpr const char* kInProgress = "in_progress";

class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(AnswerHead head, const Settings& settings, Json echo)
      : head_(std::move(head)), settings_(settings), echo_(std::move(echo)) {}

  Events begin(const Text&, const Usage&) override {
    Events events;
    const Json response = response_json(kInProgress, nullptr);
    send(events, "response.created", {{"response", response}});
    send(events, "response.in_progress", {{"response", response}});
    return events;
  }

  Events add(const Text&, const Made& made) override {
    Events events;
    add_piece(events, true, made.thinking);
    for (size_t i = made.n_thinking; i < made.tokens.size(); ++i) tokens_.push_back(made.tokens[i]);
    made.each_part([&](const std::string& text) { add_piece(events, false, text); },
                   [&](const ToolCall& call) { add_call(events, call); });
    return events;
  }

  Events end(const Text& text, const Usage& usage, bool) override {
    Events events;
    const char* status = status_of(text);
    end_item(events, status);
    send(events, std::string("response.") + status,
         {{"response", response_json(status, responses_usage(usage))}});
    return events;
  }

  Json failure(const Refusal& refusal) override {
    Events events;
    Json response = response_json("failed", nullptr);
    response["error"] = {
        {"code", refusal.status == kBadRequest ? "invalid_prompt" : "server_error"},
        {"message", refusal.what()}};
    send(events, "response.failed", {{"response", std::move(response)}});
    return events[0];
  }

  void take(const Text& text, Made made) override {
    (void)add(text, made);
    Events not_sent;
    status_ = status_of(text);
    end_item(not_sent, status_);
  }

  Json whole(const Usage& usage) override { return response_json(status_, responses_usage(usage)); }

 private:
  static const char* status_of(const Text& text) {
    if (text.calls()) return "completed";
    const bool complete = text.finish() == MOE_FINISH_EOS || text.finish() == MOE_FINISH_STOP;
    return complete ? "completed" : "incomplete";
  }

  Json response_json(const std::string& status, Json usage) const {
    Json json = {{"id", "resp_" + head_.digits},
                 {"object", "response"},
                 {"created_at", head_.created},
                 {"status", status},
                 {"background", false},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"instructions", nullptr},
                 {"max_output_tokens", nullptr},
                 {"metadata", Json::object()},
                 {"model", head_.model},
                 {"output", output_},
                 {"parallel_tool_calls", false},
                 {"previous_response_id", nullptr},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"store", false},
                 {"temperature", short_number(settings_.sampling.temperature)},
                 {"text", {{"format", settings_.format}}},
                 {"tool_choice", "none"},
                 {"tools", Json::array()},
                 {"top_logprobs", settings_.n_top},
                 {"top_p", short_number(settings_.sampling.top_p)},
                 {"truncation", "disabled"},
                 {"usage", std::move(usage)},
                 {"user", nullptr},
                 {"system_fingerprint", head_.fingerprint},
                 {"sampling", sampling_json(settings_)}};
    json.update(echo_);
    if (status == "incomplete") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    return json;
  }

  // Thinking, or a message: the item that is open.
  std::string item_id() const {
    return (thinking_ ? "rs_" : "msg_") + head_.digits + "_" + std::to_string(output_.size());
  }

  Json item_json(const char* status, Json content) const {
    Json json = {{"id", item_id()}, {"type", thinking_ ? "reasoning" : "message"}};
    if (thinking_) {
      json["summary"] = Json::array();
    } else {
      json["role"] = "assistant";
    }
    json["status"] = status;
    json["content"] = std::move(content);
    return json;
  }

  Json part_json(const Json& tokens) const {
    if (thinking_) return {{"type", "reasoning_text"}, {"text", text_}};
    return {{"type", "output_text"},
            {"text", text_},
            {"annotations", Json::array()},
            {"logprobs", tokens}};
  }

  void begin_item(Events& events, bool thinking) {
    open_ = true;
    thinking_ = thinking;
    text_.clear();
    send(events, "response.output_item.added",
         {{"output_index", output_.size()}, {"item", item_json(kInProgress, Json::array())}});
    send_of_part(events, "response.content_part.added", {{"part", part_json(Json::array())}});
  }

  void add_piece(Events& events, bool thinking, const std::string& text) {
    if (text.empty()) return;
    if (!open_ || thinking != thinking_) {
      end_item(events, "completed");
      begin_item(events, thinking);
    }
    text_ += text;
    Json members = {{"delta", text}};
    if (!thinking) {
      Json tokens = Json::array();
      for (; n_sent_ < tokens_.size(); ++n_sent_) tokens.push_back(tokens_[n_sent_]);
      members["logprobs"] = std::move(tokens);
    }
    send_of_part(events, text_event("delta"), std::move(members));
  }

  void end_item(Events& events, const char* status) {
    if (!open_) return;
    open_ = false;
    Json members = {{"text", text_}};
    if (!thinking_) members["logprobs"] = tokens_;
    send_of_part(events, text_event("done"), std::move(members));
    const Json part = part_json(tokens_);
    send_of_part(events, "response.content_part.done", {{"part", part}});
    Json item = item_json(status, Json::array({part}));
    send(events, "response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    if (thinking_) return;
    tokens_ = Json::array();
    n_sent_ = 0;
  }

  // An item of its own, which is whole at once.
  void add_call(Events& events, const ToolCall& call) {
    end_item(events, "completed");
    const std::string id = "fc_" + head_.digits + "_" + std::to_string(output_.size());
    const auto item = [&](const char* status, const std::string& arguments) {
      return Json{{"id", id},           {"type", "function_call"}, {"status", status},
                  {"call_id", call.id}, {"name", call.name},       {"arguments", arguments}};
    };
    const size_t at = output_.size();
    send(events, "response.output_item.added",
         {{"output_index", at}, {"item", item(kInProgress, "")}});
    send(events, "response.function_call_arguments.delta",
         {{"item_id", id}, {"output_index", at}, {"delta", call.arguments}});
    send(events, "response.function_call_arguments.done",
         {{"item_id", id},
          {"output_index", at},
          {"name", call.name},
          {"arguments", call.arguments}});
    output_.push_back(item("completed", call.arguments));
    send(events, "response.output_item.done", {{"output_index", at}, {"item", output_.back()}});
  }

  std::string text_event(const char* what) const {
    return std::string("response.") + (thinking_ ? "reasoning_text." : "output_text.") + what;
  }

  void send_of_part(Events& events, const std::string& type, Json members) {
    Json place = {{"item_id", item_id()}, {"output_index", output_.size()}, {"content_index", 0}};
    place.update(members);
    send(events, type, std::move(place));
  }

  void send(Events& events, const std::string& type, const Json& members) {
    Json json = {{"type", type}, {"sequence_number", n_events_++}};
    json.update(members);
    events.push_back(std::move(json));
  }

  const AnswerHead head_;
  const Settings& settings_;
  const Json echo_;  // fields of the request
  int n_events_ = 0;
  const char* status_ = kInProgress;  // of a whole answer
  Json output_ = Json::array();       // the items that have ended
  // The item after them, if it is open.
  bool open_ = false;
  bool thinking_ = false;
  std::string text_;
  Json tokens_ = Json::array();  // log-probabilities of the message
  size_t n_sent_ = 0;            // of these
};

}  // namespace

std::unique_ptr<Answer> responses_answer(const AnswerHead& head, const Settings& settings,
                                         Json echo) {
  return std::make_unique<ResponsesAnswer>(head, settings, std::move(echo));
}

}  // namespace moe_serve
