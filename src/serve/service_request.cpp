// SPDX-License-Identifier: MIT
// Collects the texts of a request into the events that answer it.
#include "src/serve/service_request.h"

#include <cstdio>
#include <new>
#include <random>
#include <utility>

#include "src/serve/receipt.h"

namespace moe_serve {
namespace {

constexpr int kRetrySeconds = 1;  // after errors that pass
// Clients of every API understand it.
constexpr const char* kNoMemory =
    R"({"type":"error","error":{"message":"out of memory","type":"overloaded_error","param":null,"code":null}})";

// 24 digits that no other answer has.
std::string new_digits() {
  std::random_device random;
  char digits[25];
  std::snprintf(digits, sizeof digits, "%08x%08x%08x", random(), random(), random());
  return digits;
}

int64_t unix_seconds() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

bool Listener::has_names() const {
  return endpoint_ == MOE_ENDPOINT_MESSAGES || endpoint_ == MOE_ENDPOINT_RESPONSES;
}

// Events with names have their type as their name.
const char* Listener::name_of(const Json& event) const {
  return has_names() ? event["type"].get_ref<const std::string&>().c_str() : nullptr;
}

void Listener::call(std::string_view text, moe_service_event event) const {
  event.json = text.data();
  event.n_bytes = text.size();
  callback_(user_, &event);
}

void Listener::answer(const Json& json) const {
  auto event = MOE_INIT(moe_service_event);
  event.status = 200;
  event.last = 1;
  call(to_text(json), event);
}

void Listener::send(const Json& json, bool last) const {
  auto event = MOE_INIT(moe_service_event);
  event.status = 200;
  event.last = last ? 1 : 0;
  event.name = name_of(json);
  call(to_text(json), event);
}

// The last event comes also without memory for its text.
void Listener::refuse(const Refusal& refusal, Answer* stream) const {
  const bool passes = refusal.status == kTooMany || refusal.status == kUnavailable;
  auto event = MOE_INIT(moe_service_event);
  event.status = refusal.status;
  event.last = 1;
  event.retry_after = passes ? kRetrySeconds : 0;
  Json json;
  std::string text;
  try {
    json = stream == nullptr ? refusal.json(endpoint_) : stream->failure(refusal);
    text = to_text(json);
  } catch (const std::bad_alloc&) {
    event.status = kUnavailable;
    event.retry_after = kRetrySeconds;
    if (stream != nullptr && has_names()) event.name = "error";
    return call(kNoMemory, event);
  }
  if (stream != nullptr) event.name = name_of(json);
  call(text, event);
}

ServiceRequest::ServiceRequest(const Host& host, Order&& order, uint64_t number,
                               const Listener& listener)
    : number_(number),
      host_(host),
      listener_(listener),
      settings_(std::move(order.settings)),
      chat_(std::move(order.chat)),
      request_(std::move(order.request)),
      answer_(make_answer({.endpoint = order.endpoint,
                           .digits = new_digits(),
                           .created = unix_seconds(),
                           .model = host.name,
                           .fingerprint = host.fingerprint.text},
                          settings_, order)) {
  for (std::vector<int32_t>& prompt : order.prompts) {
    usage_.n_prompt += static_cast<int64_t>(prompt.size());
    for (int32_t i = 0; i < settings_.n; ++i) {
      const auto index = static_cast<int>(texts_.size());
      texts_.push_back(std::make_unique<Text>(host, settings_, prompt, index));
    }
  }
  n_left_ = texts_.size();
}

void ServiceRequest::send(const Answer::Events& events, bool last) const {
  for (size_t i = 0; i < events.size(); ++i) {
    listener_.send(events[i], last && i + 1 == events.size());
  }
}

// As for prompt_tokens, a prompt counts once however many texts continue it.
void ServiceRequest::count_reused(const Text& text, size_t n) {
  if (text.index() % settings_.n == 0) usage_.n_cached += static_cast<int64_t>(n);
}

void ServiceRequest::begin(const Text& text) {
  if (streams()) send(answer_->begin(text, usage_), false);
}

void ServiceRequest::report(Text& text) {
  if (!streams()) return;
  const Made made = text.take();
  if (!made.empty()) send(answer_->add(text, made), false);
}

bool ServiceRequest::finish(Text& text) {
  report(text);
  usage_.n_made += text.n_made();
  usage_.n_thinking += text.n_thinking();
  ended_ = --n_left_ == 0;
  if (streams()) {
    Answer::Events events = answer_->end(text, usage_, ended_);
    if (ended_) add_receipt(events.back());
    send(events, ended_);
    return ended_;
  }
  answer_->take(text, text.take());
  if (!ended_) return false;
  Json whole = answer_->whole(usage_);
  add_receipt(whole);
  listener_.answer(whole);
  return true;
}

// Where a stream ends with an answer of its own, it is this that gets the receipt.
void ServiceRequest::add_receipt(Json& last_event) const {
  if (request_.is_null()) return;
  ReceiptTokens tokens;
  tokens.seed = settings_.sampling.seed;
  for (const auto& text : texts_) {
    if (text->index() % settings_.n == 0) tokens.prompts.push_back(&text->prompt());
    tokens.texts.push_back(&text->tokens());
    tokens.finishes.push_back(text->finish());
  }
  Json receipt = write_receipt(host_, listener_.endpoint(), request_, tokens);
  if (!settings_.receipt) return;
  Json& answer = last_event.contains("response") ? last_event["response"] : last_event;
  answer["receipt"] = std::move(receipt);
}

void ServiceRequest::fail(const Refusal& refusal) {
  ended_ = true;
  listener_.refuse(refusal, streams() ? answer_.get() : nullptr);
}

}  // namespace moe_serve
