// SPDX-License-Identifier: MIT
// Checks a request's fields: the known ones, those that change no answer, and those that may only
// be switched off.
#include "src/serve/fields.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <utility>

#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

// With any value: they tell the operator of a service who asks, and change no answer.
constexpr const char* kWithoutEffect[] = {"user",
                                          "metadata",
                                          "store",
                                          "service_tier",
                                          "safety_identifier",
                                          "prompt_cache_key",
                                          "prompt_cache_options",
                                          "prompt_cache_retention",
                                          "cache_control",
                                          "user_profile_id",
                                          "workspace_id"};

// Fields that clients send with the value that switches them off; nothing else is possible here.
// Null stands for those that only null, which is left out of requests, switches off.
std::vector<std::pair<const char*, Json>> switched_off() {
  return {{"frequency_penalty", 0},
          {"presence_penalty", 0},
          {"response_format", Json{{"type", "text"}}},
          {"modalities", Json::array({"text"})},
          {"tools", Json::array()},
          {"tool_choice", "none"},
          {"tool_choice", Json{{"type", "none"}}},
          {"max_tool_calls", nullptr},
          {"mcp_servers", Json::array()},
          {"functions", Json::array()},
          {"function_call", "none"},
          {"parallel_tool_calls", true},
          {"parallel_tool_calls", false},
          {"echo", false},
          {"suffix", ""},
          {"best_of", 1},
          {"verbosity", "medium"},
          {"background", false},
          {"truncation", "disabled"},
          {"speed", "standard"},
          {"context_management", Json::array()},
          {"previous_response_id", nullptr},
          {"conversation", nullptr},
          {"moderation", nullptr},
          {"container", nullptr},
          {"inference_geo", nullptr},
          {"prefill", nullptr}};
}

// The end of a range; whole numbers without an exponent.
std::string number_text(double value) {
  if (std::fabs(value) < 1e18 && value == std::floor(value)) {
    return std::to_string(static_cast<int64_t>(value));
  }
  std::ostringstream text;
  text << value;
  return text.str();
}

Refusal out_of_range(const std::string& key, const char* kind, double low, double high,
                     const Json& found) {
  return bad_field(key, std::string("expected a ") + kind + " in " + number_text(low) + ".." +
                            number_text(high) + ", found " + shown(found));
}

}  // namespace

void check_fields(const Json& request, const Fields& fields) {
  for (const auto& [key, value] : request.items()) {
    const auto is = [&k = key](const auto& name) { return k == name; };
    if (std::any_of(fields.begin(), fields.end(), is)) continue;
    if (std::any_of(std::begin(kWithoutEffect), std::end(kWithoutEffect), is)) continue;
    bool known = false;
    bool off = false;
    for (const auto& [name, only] : switched_off()) {
      if (key != name) continue;
      known = true;
      off = off || value == only;
    }
    if (off) continue;
    const std::string name = key.substr(0, 60);
    if (known) throw bad_field(name, "not supported, found " + shown(value), "unsupported_value");
    throw Refusal(kBadRequest, "unknown field '" + name + "'", name, "unknown_parameter");
  }
}

bool flag_of(const Json& object, const std::string& key, bool otherwise, const std::string& where) {
  const auto at = object.find(key);
  if (at == object.end()) return otherwise;
  if (at->is_boolean()) return at->get<bool>();
  throw bad_field(where + key, "expected true or false, found " + shown(*at));
}

int64_t integer_of(const Json& object, const std::string& key, int64_t low, int64_t high,
                   int64_t otherwise) {
  const auto at = object.find(key);
  if (at == object.end()) return otherwise;
  const bool fits = at->is_number_integer() &&
                    (!at->is_number_unsigned() || at->get<uint64_t>() <= uint64_t{INT64_MAX});
  if (fits && at->get<int64_t>() >= low && at->get<int64_t>() <= high) return at->get<int64_t>();
  throw out_of_range(key, "whole number", static_cast<double>(low), static_cast<double>(high), *at);
}

double number_of(const Json& object, const std::string& key, double low, double high,
                 double otherwise) {
  const auto at = object.find(key);
  if (at == object.end()) return otherwise;
  if (at->is_number() && at->get<double>() >= low && at->get<double>() <= high) {
    return at->get<double>();
  }
  throw out_of_range(key, "number", low, high, *at);
}

}  // namespace moe_serve
