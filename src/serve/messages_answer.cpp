// SPDX-License-Identifier: MIT
// Writes the answers of Anthropic's messages: a list of blocks of thinking and of text.

#include <utility>

#include "src/serve/answer.h"

namespace moe_serve {
namespace {

const char* stop_reason(const Text& text) {
  if (text.calls()) return "tool_use";
  switch (text.finish()) {
    case MOE_FINISH_EOS:
      return "end_turn";
    case MOE_FINISH_STOP:
      return "stop_sequence";
    case MOE_FINISH_CONTEXT:
      return "model_context_window_exceeded";
    default:
      return "max_tokens";
  }
}

Json stop_json(const Text& text) {
  Json json = {{"stop_reason", stop_reason(text)}, {"stop_sequence", nullptr}};
  if (text.stop() != nullptr) json["stop_sequence"] = *text.stop();
  return json;
}

// Unlike OpenAI's, "input_tokens" are without those from the cache.
Json messages_usage(const Usage& usage) {
  return {{"input_tokens", usage.n_prompt - usage.n_cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.n_cached},
          {"output_tokens", usage.n_made}};
}

// A signature would tell the API that it wrote the thinking itself; here nobody asks.
Json block_json(bool thinking, const std::string& text) {
  if (!thinking) return {{"type", "text"}, {"text", text}};
  return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
}

Json tool_use_json(const ToolCall& call, Json input) {
  return {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}};
}

class MessagesAnswer final : public Answer {
 public:
  MessagesAnswer(AnswerHead head, const Settings& settings)
      : head_(std::move(head)), settings_(settings) {}

  Events begin(const Text&, const Usage& usage) override {
    const Json unknown = {{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
    return {{{"type", "message_start"}, {"message", message(Json::array(), unknown, usage)}}};
  }

  Events add(const Text&, const Made& made) override {
    Events events;
    add_piece(events, true, made.thinking);
    made.each_part([&](const std::string& text) { add_piece(events, false, text); },
                   [&](const ToolCall& call) { add_call(events, call); });
    return events;
  }

  Events end(const Text& text, const Usage& usage, bool) override {
    Events events;
    close_block(events);
    events.push_back(
        {{"type", "message_delta"}, {"delta", stop_json(text)}, {"usage", messages_usage(usage)}});
    events.push_back({{"type", "message_stop"}});
    return events;
  }

  Json failure(const Refusal& refusal) override { return refusal.json(head_.endpoint); }

  void take(const Text& text, Made made) override {
    made_ = std::move(made);
    stop_ = stop_json(text);
  }

  Json whole(const Usage& usage) override {
    Json content = Json::array();
    if (!made_.thinking.empty()) content.push_back(block_json(true, made_.thinking));
    const auto add_text = [&](const std::string& text) {
      if (!text.empty()) content.push_back(block_json(false, text));
    };
    made_.each_part(add_text, [&](const ToolCall& call) {
      content.push_back(tool_use_json(call, call.input()));
    });
    return message(std::move(content), stop_, usage);
  }

 private:
  Json message(Json content, const Json& stop, const Usage& usage) const {
    Json json = {{"id", "msg_" + head_.digits},
                 {"type", "message"},
                 {"role", "assistant"},
                 {"model", head_.model},
                 {"content", std::move(content)}};
    json.update(stop);
    json["usage"] = messages_usage(usage);
    json["system_fingerprint"] = head_.fingerprint;
    json["sampling"] = sampling_json(settings_);
    return json;
  }

  void add_piece(Events& events, bool thinking, const std::string& text) {
    if (text.empty()) return;
    if (!open_ || thinking != thinking_) {
      close_block(events);
      events.push_back({{"type", "content_block_start"},
                        {"index", n_blocks_},
                        {"content_block", block_json(thinking, "")}});
      open_ = true;
      thinking_ = thinking;
    }
    const char* member = thinking ? "thinking" : "text";
    const char* type = thinking ? "thinking_delta" : "text_delta";
    events.push_back({{"type", "content_block_delta"},
                      {"index", n_blocks_},
                      {"delta", {{"type", type}, {member, text}}}});
  }

  void add_call(Events& events, const ToolCall& call) {
    close_block(events);
    events.push_back({{"type", "content_block_start"},
                      {"index", n_blocks_},
                      {"content_block", tool_use_json(call, Json::object())}});
    events.push_back({{"type", "content_block_delta"},
                      {"index", n_blocks_},
                      {"delta", {{"type", "input_json_delta"}, {"partial_json", call.arguments}}}});
    open_ = true;
    close_block(events);
  }

  void close_block(Events& events) {
    if (!open_) return;
    events.push_back({{"type", "content_block_stop"}, {"index", n_blocks_}});
    open_ = false;
    ++n_blocks_;
  }

  const AnswerHead head_;
  const Settings& settings_;
  // A stream has closed n_blocks_, and the block after them may be open.
  int n_blocks_ = 0;
  bool open_ = false;
  bool thinking_ = false;
  // A whole answer has its text and the reason of its end.
  Made made_;
  Json stop_;
};

}  // namespace

std::unique_ptr<Answer> messages_answer(const AnswerHead& head, const Settings& settings) {
  return std::make_unique<MessagesAnswer>(head, settings);
}

}  // namespace moe_serve
