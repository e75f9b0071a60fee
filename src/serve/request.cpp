// SPDX-License-Identifier: MIT
// Reads the fields of a request, each with its range, into settings of a generation.
#include "src/serve/request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "src/serve/fields.h"
#include "src/serve/messages.h"
#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr int64_t kMostTexts = 64;  // of one request

// repetition_penalty, min_p, top_k and ignore_eos are those of vLLM and llama.cpp.
Fields fields_of(bool is_chat) {
  Fields fields = {"model",      "stream",      "stream_options",
                   "max_tokens", "temperature", "top_p",
                   "top_k",      "min_p",       "seed",
                   "stop",       "n",           "repetition_penalty",
                   "logit_bias", "ignore_eos",  "logprobs"};
  if (!is_chat) {
    fields.push_back("prompt");
    return fields;
  }
  fields.insert(fields.end(), {"messages", "max_completion_tokens", "top_logprobs",
                               "chat_template_kwargs", "reasoning_effort"});
  return fields;
}

void check_model(const Host& host, const Json& request) {
  const auto at = request.find("model");
  if (at == request.end()) return;
  if (!at->is_string()) throw bad_field("model", "expected a string, found " + shown(*at));
  if (*at == host.name) return;
  throw Refusal(
      kNotFound,
      "'model': expected '" + host.name + "', found '" + at->get<std::string>().substr(0, 60) + "'",
      "model", "model_not_found");
}

std::vector<std::string> stops_of(const Json& request) {
  const auto at = request.find("stop");
  if (at == request.end()) return {};
  const Json list = at->is_array() ? *at : Json::array({*at});
  std::vector<std::string> stops;
  for (const Json& stop : list) {
    const bool good = stop.is_string() && !stop.get_ref<const std::string&>().empty() &&
                      stop.get_ref<const std::string&>().find('\0') == std::string::npos;
    if (!good) {
      throw bad_field(
          "stop", "expected a non-empty string, or a list of such strings, found " + shown(*at));
    }
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

std::vector<moe_logit_bias> bias_of(const Host& host, const Json& request) {
  const auto at = request.find("logit_bias");
  std::vector<moe_logit_bias> bias;
  if (at == request.end()) return bias;
  const std::string expected = "expected an object of token ids in 0.." +
                               std::to_string(host.vocab_size - 1) +
                               " with numbers in -100..100, found ";
  if (!at->is_object()) throw bad_field("logit_bias", expected + shown(*at));
  for (const auto& [key, value] : at->items()) {
    int32_t token = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), token);
    const bool whole = failed == std::errc() && end == key.data() + key.size();
    const bool good = whole && token >= 0 && token < host.vocab_size && value.is_number() &&
                      std::fabs(value.get<double>()) <= 100;
    if (!good) {
      throw bad_field("logit_bias", expected + "'" + key.substr(0, 40) + "': " + shown(value));
    }
    bias.push_back({token, value.get<float>()});
  }
  return bias;
}

void read_stream(const Json& request, Settings& s) {
  s.stream = flag_of(request, "stream", false);
  const auto at = request.find("stream_options");
  if (at == request.end()) return;
  if (!at->is_object()) {
    throw bad_field("stream_options", "expected an object, found " + shown(*at));
  }
  if (!s.stream) throw bad_field("stream_options", "only with 'stream': true");
  for (const auto& [key, value] : at->items()) {
    const bool off = key == "include_obfuscation" && value == false;
    if (key == "include_usage" || off) continue;
    const std::string name = "stream_options." + key.substr(0, 40);
    throw Refusal(kBadRequest, "unknown field '" + name + "'", name, "unknown_parameter");
  }
  s.stream_usage = flag_of(*at, "include_usage", false, "stream_options.");
}

void read_sampling(const Host& host, const Json& request, Settings& s) {
  const auto number = [&](const char* key, double low, double high, float& value) {
    value = static_cast<float>(number_of(request, key, low, high, static_cast<double>(value)));
  };
  s.sampling = host.sampling;
  number("temperature", 0, 100, s.sampling.temperature);
  number("top_p", 1e-6, 1, s.sampling.top_p);  // the library would read 0 as off
  number("min_p", 0, 0.999999, s.sampling.min_p);
  number("repetition_penalty", 0.01, 100, s.sampling.repetition_penalty);
  s.sampling.top_k =
      static_cast<int32_t>(integer_of(request, "top_k", 0, INT32_MAX, int64_t{s.sampling.top_k}));
  const int64_t seed = integer_of(request, "seed", 0, INT64_MAX, -1);
  s.sampling.seed = seed < 0 ? std::random_device{}() : static_cast<uint64_t>(seed);
  s.bias = bias_of(host, request);
}

int32_t most_tokens(const Json& request, int64_t otherwise) {
  if (request.contains("max_tokens") && request.contains("max_completion_tokens")) {
    throw bad_field("max_completion_tokens", "the same as 'max_tokens'; give one of them");
  }
  const int64_t given = integer_of(request, "max_tokens", 1, kMostTokens, otherwise);
  return static_cast<int32_t>(integer_of(request, "max_completion_tokens", 1, kMostTokens, given));
}

// In a chat "logprobs" is a switch and "top_logprobs" a number; in a completion "logprobs" is both.
void read_logprobs(const Json& request, bool is_chat, Settings& s) {
  if (is_chat) {
    s.logprobs = flag_of(request, "logprobs", false);
    s.n_top = static_cast<int32_t>(integer_of(request, "top_logprobs", 0, 20, 0));
    if (s.n_top > 0 && !s.logprobs) throw bad_field("top_logprobs", "only with 'logprobs': true");
    return;
  }
  const auto at = request.find("logprobs");
  if (at == request.end() || *at == false) return;
  s.logprobs = true;
  s.n_top = static_cast<int32_t>(integer_of(request, "logprobs", 0, 20, 0));
}

std::vector<int32_t> ids_of(const Host& host, const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& value : list) {
    const bool good = value.is_number_integer() && value >= 0 && value < host.vocab_size;
    if (!good) {
      throw bad_field("prompt", "expected token ids in 0.." + std::to_string(host.vocab_size - 1) +
                                    ", found " + shown(value));
    }
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

std::vector<int32_t> prompt_of(const Host& host, const Json& value) {
  if (value.is_array()) return ids_of(host, value);
  if (!value.is_string()) {
    throw bad_field("prompt", "expected a text, a list of token ids, or a list of those, found " +
                                  shown(value));
  }
  if (host.tokenizer == nullptr) {
    throw bad_field("prompt", "the model has no tokenizer; give a list of token ids");
  }
  return host.encode(value.get<std::string>(), 0);
}

// A text, ids, or a list of either.
std::vector<std::vector<int32_t>> prompts_of(const Host& host, const Json& request) {
  const auto at = request.find("prompt");
  if (at == request.end()) {
    throw Refusal(kBadRequest, "'prompt' is missing", "prompt", "missing_required_parameter");
  }
  const bool several = at->is_array() && !at->empty() && !(*at)[0].is_number();
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& value : several ? *at : Json::array({*at})) {
    prompts.push_back(prompt_of(host, value));
    if (static_cast<int64_t>(prompts.size()) > kMostTexts) break;
  }
  return prompts;
}

// Log-probabilities stay in memory until the answer is complete.
void check_logprobs(const Host& host, const Order& order) {
  const Settings& s = order.settings;
  if (!s.logprobs || s.stream) return;
  constexpr int64_t kMost = 1 << 18;
  const int64_t texts = static_cast<int64_t>(order.prompts.size()) * s.n;
  const int64_t each = s.max_tokens > 0 ? std::min(s.max_tokens, host.context) : host.context;
  if (texts * each * (s.n_top + 1) <= kMost) return;
  throw bad_field(order.is_chat ? "top_logprobs" : "logprobs",
                  "too many for one answer (texts x tokens x (1 + top) above " +
                      std::to_string(kMost) + "): ask for a stream, or for fewer");
}

void check_length(const Host& host, const std::vector<int32_t>& prompt, const char* field) {
  if (prompt.empty()) throw bad_field(field, "the text has no tokens");
  if (prompt.size() <= static_cast<size_t>(host.max_prompt)) return;
  throw Refusal(kBadRequest,
                "'" + std::string(field) + "': expected at most " +
                    std::to_string(host.max_prompt) + " tokens, found " +
                    std::to_string(prompt.size()),
                field, "context_length_exceeded");
}

void check_stops(const Host& host, const Settings& s) {
  if (!s.stop.empty() && host.tokenizer == nullptr) {
    throw bad_field("stop", "the model has no tokenizer");
  }
  size_t longest = 0;
  for (const std::string& stop : s.stop) longest = std::max(longest, stop.size());
  if (s.stop.size() <= 64 && longest <= 4096) return;
  throw bad_field("stop", "expected at most 64 texts of at most 4096 bytes");
}

}  // namespace

Order read_order(const Host& host, moe_endpoint endpoint, std::string_view body) {
  const Json request = parse_body(body);
  Order order;
  order.is_chat = endpoint == MOE_ENDPOINT_CHAT;
  check_fields(request, fields_of(order.is_chat));
  check_model(host, request);
  Settings& s = order.settings;
  read_stream(request, s);
  read_sampling(host, request, s);
  read_logprobs(request, order.is_chat, s);
  s.max_tokens = most_tokens(request, order.is_chat ? 0 : 16);  // the API's own defaults
  s.ignore_eos = flag_of(request, "ignore_eos", false);
  s.stop = stops_of(request);
  check_stops(host, s);
  s.n = static_cast<int32_t>(integer_of(request, "n", 1, kMostTexts, 1));
  if (order.is_chat) {
    order.chat = conversation(host, request);
    order.prompts.push_back(conversation_tokens(order.chat.get()));
  } else {
    order.prompts = prompts_of(host, request);
  }
  for (const auto& prompt : order.prompts) {
    check_length(host, prompt, order.is_chat ? "messages" : "prompt");
  }
  if (static_cast<int64_t>(order.prompts.size()) * s.n > kMostTexts) {
    throw bad_field(order.prompts.size() > 1 ? "prompt" : "n",
                    "expected at most " + std::to_string(kMostTexts) + " texts in all");
  }
  check_logprobs(host, order);
  return order;
}

Json tokenize(const Host& host, std::string_view body) {
  const Json request = parse_body(body);
  check_fields(request, {"model", "prompt", "messages", "add_special_tokens",
                         "chat_template_kwargs", "reasoning_effort"});
  check_model(host, request);
  if (request.contains("prompt") == request.contains("messages")) {
    throw Refusal(kBadRequest, "expected one of 'prompt' and 'messages'", "prompt",
                  "missing_required_parameter");
  }
  std::vector<int32_t> tokens;
  if (request.contains("messages")) {
    const Chat chat = conversation(host, request);
    tokens = conversation_tokens(chat.get());
  } else {
    const Json& prompt = request["prompt"];
    if (!prompt.is_string()) throw bad_field("prompt", "expected a text, found " + shown(prompt));
    if (host.tokenizer == nullptr) throw bad_field("prompt", "the model has no tokenizer");
    const bool special = flag_of(request, "add_special_tokens", true);
    tokens = host.encode(prompt.get<std::string>(), special ? 0 : uint32_t{MOE_ENCODE_NO_SPECIAL});
  }
  return {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", host.context}};
}

}  // namespace moe_serve
