// SPDX-License-Identifier: MIT
// Parses bodies of requests, and writes JSON in one line.
#include "src/serve/json.h"

#include <map>
#include <utility>
#include <vector>

#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

constexpr size_t kMostDepth = 64;  // freeing and printing a value is recursive
// Finding a key takes time by the number of keys before it.
constexpr size_t kMostKeys = 4096;

enum class EqualKeys { kRefused, kLastCounts };

/// Builds a value. The library's own builders look each key up among those before it, and with a
/// callback walk through the list or object around each one that ends: a body of a few megabytes
/// would take them hours.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(EqualKeys equal_keys) : equal_keys_(equal_keys) {}
  Json take() { return std::move(root_); }

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in a text
  bool start_object(size_t) override {
    keys_.emplace_back();
    return open(Json::object());
  }
  bool key(string_t& name) override {
    std::map<std::string, size_t>& keys = keys_.back();
    const auto [at, is_new] = keys.emplace(name, keys.size());
    if (equal_keys_ == EqualKeys::kRefused) check_key(name, is_new);
    Json::object_t& object = open_.back()->get_ref<Json::object_t&>();
    if (is_new) object.emplace_back(std::move(name), Json());
    member_ = &object.data()[at->second].second;
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return end_array();
  }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& e) override {
    constexpr int kTooLarge = 406;
    if (e.id == kTooLarge) {
      throw Refusal(kBadRequest, "the body is not valid JSON: a number is too large");
    }
    throw Refusal(kBadRequest,
                  "the body is not valid JSON in UTF-8, see byte " + std::to_string(byte));
  }

 private:
  Json* place(Json&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& around = *open_.back();
    Json& at = around.is_array() ? around.get_ref<Json::array_t&>().emplace_back() : *member_;
    at = std::move(value);
    return &at;
  }
  bool put(Json&& value) {
    (void)place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (open_.size() == kMostDepth) {
      throw Refusal(kBadRequest, "the JSON is nested deeper than " + std::to_string(kMostDepth));
    }
    open_.push_back(place(std::move(value)));
    return true;
  }
  // Readers of JSON differ in which of two equal keys counts.
  void check_key(const std::string& key, bool is_new) const {
    if (keys_.back().size() > kMostKeys) {
      throw Refusal(kBadRequest, "an object has more than " + std::to_string(kMostKeys) + " keys");
    }
    if (is_new) return;
    throw Refusal(kBadRequest, "an object has the key " + shown(key) + " twice");
  }

  const EqualKeys equal_keys_;
  Json root_;
  std::vector<Json*> open_;                          // what is around the place
  Json* member_ = nullptr;                           // of the object, the one whose key came last
  std::vector<std::map<std::string, size_t>> keys_;  // of the objects among these
};

}  // namespace

Json parse_body(std::string_view body) {
  Builder builder(EqualKeys::kRefused);
  (void)Json::sax_parse(body, &builder);
  Json json = builder.take();
  if (!json.is_object()) {
    throw Refusal(kBadRequest, "the body: expected a JSON object, found " + kind_of(json));
  }
  Json given = Json::object();
  for (auto& [key, value] : json.get_ref<Json::object_t&>()) {
    if (!value.is_null()) given.get_ref<Json::object_t&>().emplace_back(key, std::move(value));
  }
  return given;
}

Json parse_arguments(std::string_view json) {
  Builder builder(EqualKeys::kLastCounts);
  (void)Json::sax_parse(json, &builder);
  return builder.take();
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
