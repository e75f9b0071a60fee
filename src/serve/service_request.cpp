// SPDX-License-Identifier: MIT
// Collects the texts of a request into the events that answer it.
#include "src/serve/service_request.h"

#include <cstdio>
#include <new>
#include <random>
#include <utility>

namespace moe_serve {
namespace {

constexpr int kRetrySeconds = 1;  // after errors that pass

// "chatcmpl-" or "cmpl-" and 24 digits that no other answer has.
std::string new_id(bool is_chat) {
  std::random_device random;
  char digits[25];
  std::snprintf(digits, sizeof digits, "%08x%08x%08x", random(), random(), random());
  return (is_chat ? "chatcmpl-" : "cmpl-") + std::string(digits);
}

int64_t unix_seconds() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Listener::send(const Json& json, bool last) const {
  const std::string text = to_text(json);
  send_text(text.c_str(), text.size(), last, 200, 0);
}

void Listener::send_text(const char* text, size_t n_bytes, bool last, int status,
                         int retry_after) const {
  auto event = MOE_INIT(moe_service_event);
  event.status = status;
  event.json = text;
  event.n_bytes = n_bytes;
  event.last = last ? 1 : 0;
  event.retry_after = retry_after;
  callback_(user_, &event);
}

// The last event comes also without memory for its text.
void Listener::refuse(const Refusal& refusal) const {
  const bool passes = refusal.status == kTooMany || refusal.status == kUnavailable;
  const int retry_after = passes ? kRetrySeconds : 0;
  std::string text;
  try {
    text = to_text(refusal.json());
  } catch (const std::bad_alloc&) {
    static constexpr char kText[] =
        R"({"error":{"message":"out of memory","type":"overloaded_error","param":null,"code":null}})";
    return send_text(kText, sizeof kText - 1, true, kUnavailable, retry_after);
  }
  send_text(text.c_str(), text.size(), true, refusal.status, retry_after);
}

ServiceRequest::ServiceRequest(const Host& host, Order&& order, uint64_t number,
                               const Listener& listener)
    : number_(number),
      listener_(listener),
      settings_(std::move(order.settings)),
      chat_(std::move(order.chat)),
      head_({order.is_chat, new_id(order.is_chat), unix_seconds(), host.name}) {
  for (std::vector<int32_t>& prompt : order.prompts) {
    usage_.n_prompt += static_cast<int64_t>(prompt.size());
    for (int32_t i = 0; i < settings_.n; ++i) {
      const auto index = static_cast<int>(texts_.size());
      texts_.push_back(std::make_unique<Text>(host, settings_, prompt, index));
    }
  }
  n_left_ = texts_.size();
  choices_.resize(n_left_);
}

// As for prompt_tokens, a prompt counts once however many texts continue it.
void ServiceRequest::count_reused(const Text& text, size_t n) {
  if (text.index() % settings_.n == 0) usage_.n_cached += static_cast<int64_t>(n);
}

void ServiceRequest::begin(const Text& text) {
  if (streams() && head_.is_chat) listener_.send(role_chunk(head_, text.index()), false);
}

void ServiceRequest::report(Text& text) {
  if (!streams()) return;
  const Made made = text.take();
  if (!made.empty()) {
    listener_.send(text_chunk(head_, settings_, text.index(), made), false);
  }
}

bool ServiceRequest::finish(Text& text) {
  report(text);
  usage_.n_made += text.n_made();
  usage_.n_thinking += text.n_thinking();
  ended_ = --n_left_ == 0;
  if (streams()) {
    const bool usage_follows = settings_.stream_usage;
    listener_.send(finish_chunk(head_, settings_, text), ended_ && !usage_follows);
    if (ended_ && usage_follows) listener_.send(usage_chunk(head_, usage_), true);
    return ended_;
  }
  choices_[static_cast<size_t>(text.index())] = choice_json(head_, settings_, text, text.take());
  if (!ended_) return false;
  Json choices = Json::array();
  for (Json& choice : choices_) choices.push_back(std::move(choice));
  listener_.send(answer_json(head_, settings_, std::move(choices), usage_), true);
  return true;
}

void ServiceRequest::fail(const Refusal& refusal) {
  ended_ = true;
  listener_.refuse(refusal);
}

}  // namespace moe_serve
