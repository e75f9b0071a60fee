// SPDX-License-Identifier: MIT
// Parses bodies of requests, and writes JSON in one line.
#include "src/serve/json.h"

#include <iterator>
#include <set>
#include <vector>

#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

constexpr int kMostDepth = 64;  // freeing and printing a value is recursive
// Finding a key takes time by the number of keys before it.
constexpr size_t kMostKeys = 4096;

// Adds a key of an object. Readers of JSON differ in which of two equal keys counts.
void take_key(const std::string& key, std::set<std::string>& keys) {
  if (keys.size() == kMostKeys) {
    throw Refusal(kBadRequest, "an object has more than " + std::to_string(kMostKeys) + " keys");
  }
  if (keys.insert(key).second) return;
  throw Refusal(kBadRequest, "an object has the key " + shown(key) + " twice");
}

}  // namespace

Json parse_body(std::string_view body) {
  std::vector<std::set<std::string>> open;  // the keys of the objects around the place
  const auto watch = [&open](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMostDepth) {
      throw Refusal(kBadRequest, "the JSON is nested deeper than " + std::to_string(kMostDepth));
    }
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key)
      take_key(value.get_ref<const std::string&>(), open.back());
    return true;
  };
  Json json = Json::object();
  try {
    json = Json::parse(body, watch);
  } catch (const Json::parse_error& e) {
    throw Refusal(kBadRequest,
                  "the body is not valid JSON in UTF-8, see byte " + std::to_string(e.byte));
  } catch (const Json::out_of_range&) {
    throw Refusal(kBadRequest, "the body is not valid JSON: a number is too large");
  }
  if (!json.is_object()) {
    throw Refusal(kBadRequest, "the body: expected a JSON object, found " + kind_of(json));
  }
  for (auto at = json.begin(); at != json.end();)
    at = at->is_null() ? json.erase(at) : std::next(at);
  return json;
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40);
}

std::string kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::null:
      return "null";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "true or false";
    default:
      return "a number";
  }
}

}  // namespace moe_serve
