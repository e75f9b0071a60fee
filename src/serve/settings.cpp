// SPDX-License-Identifier: MIT
// Reads the fields that the endpoints share, each with its range.
#include "src/serve/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

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

int32_t draft_of(const Host& host, const Json& request) {
  const auto n =
      static_cast<int32_t>(integer_of(request, "draft", 0, kMostDraft, int64_t{host.max_draft}));
  if (n == 0 || !host.whole_prompts) return n;
  throw bad_field("draft",
                  "not with this model, whose expert capacity counts the tokens of a pass; "
                  "expected 0, found " +
                      std::to_string(n),
                  "unsupported_value");
}

void check_stops(const Host& host, const std::vector<std::string>& stops, const char* field) {
  if (!stops.empty() && host.tokenizer == nullptr) {
    throw bad_field(field, "the model has no tokenizer");
  }
  size_t longest = 0;
  for (const std::string& stop : stops) longest = std::max(longest, stop.size());
  if (stops.size() <= 64 && longest <= 4096) return;
  throw bad_field(field, "expected at most 64 texts of at most 4096 bytes");
}

}  // namespace

// repetition_penalty, min_p, top_k and ignore_eos are those of vLLM and llama.cpp.
Fields generating_fields(const Fields& more) {
  Fields fields = {"model",      "stream",     "temperature", "top_p",
                   "top_k",      "min_p",      "seed",        "repetition_penalty",
                   "logit_bias", "ignore_eos", "receipt",     "draft"};
  fields.insert(fields.end(), more.begin(), more.end());
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

Settings read_settings(const Host& host, const Json& request) {
  check_model(host, request);
  Settings settings;
  settings.stream = flag_of(request, "stream", false);
  read_sampling(host, request, settings);
  settings.max_draft = draft_of(host, request);
  settings.ignore_eos = flag_of(request, "ignore_eos", false);
  settings.receipt = flag_of(request, "receipt", false);
  return settings;
}

int32_t tokens_of(const Json& request, const char* field, int64_t otherwise) {
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  return static_cast<int32_t>(integer_of(request, field, 1, kMostTokens, otherwise));
}

std::vector<std::string> stops_of(const Host& host, const Json& request, const char* field) {
  const auto at = request.find(field);
  if (at == request.end()) return {};
  const Json list = at->is_array() ? *at : Json::array({*at});
  std::vector<std::string> stops;
  for (const Json& stop : list) {
    const bool good = stop.is_string() && !stop.get_ref<const std::string&>().empty() &&
                      stop.get_ref<const std::string&>().find('\0') == std::string::npos;
    if (!good) {
      throw bad_field(
          field, "expected a non-empty string, or a list of such strings, found " + shown(*at));
    }
    stops.push_back(stop.get<std::string>());
  }
  check_stops(host, stops, field);
  return stops;
}

void read_stream_options(const Json& request, bool with_usage, Settings& settings) {
  const auto at = request.find("stream_options");
  if (at == request.end()) return;
  if (!at->is_object()) {
    throw bad_field("stream_options", "expected an object, found " + shown(*at));
  }
  if (!settings.stream) throw bad_field("stream_options", "only with 'stream': true");
  for (const auto& [key, value] : at->items()) {
    const bool off = key == "include_obfuscation" && (value == false || value.is_null());
    if (off || (with_usage && key == "include_usage")) continue;
    const std::string name = "stream_options." + key.substr(0, 40);
    throw Refusal(kBadRequest, "unknown field '" + name + "'", name, "unknown_parameter");
  }
  settings.stream_usage = flag_of(*at, "include_usage", false, "stream_options.");
}

}  // namespace moe_serve
