// SPDX-License-Identifier: MIT
// The operations of Json: access, change, merge patches, text.
#include "formats/import/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace moe {
namespace {

bool is_member(const Json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_string();
}

// std::variant's destructor allocates only for arrays and objects.
template <class T>
std::string scalar_text(const T& value) {
  return nlohmann::json(value).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Json::Json() noexcept = default;
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept { value_.swap(other.value_); }
Json::~Json() = default;

Json& Json::operator=(Json other) noexcept {
  value_.swap(other.value_);
  return *this;
}

Json::Json(bool value) : value_(value) {}
Json::Json(const char* text) : value_(Held<std::string>(text)) {}
Json::Json(std::string text) : value_(Held<std::string>(std::move(text))) {}
Json::Json(Array elements) : value_(Held<Array>(std::move(elements))) {}

// One representation per integer, so that equal integers compare equal.
Json Json::of_signed(int64_t value) {
  if (value >= 0) return of_unsigned(static_cast<uint64_t>(value));
  Json out;
  out.value_ = value;
  return out;
}

Json Json::of_unsigned(uint64_t value) {
  Json out;
  out.value_ = value;
  return out;
}

Json Json::of_float(double value) {
  Json out;
  out.value_ = value;
  return out;
}

Json Json::object() {
  Json out;
  out.value_ = Held<Object>();
  return out;
}

Json Json::array(std::initializer_list<Item> list) {
  Array elements;
  elements.reserve(list.size());
  for (const Item& item : list) elements.push_back(std::move(item.value()));
  return Json(std::move(elements));
}

Json::Json(std::initializer_list<Item> list) : Json(array(list)) {
  if (!std::all_of(begin(), end(), is_member)) return;
  Object members;
  for (Json& element : elements()) members.emplace(element[0].text(), std::move(element[1]));
  value_ = Held<Object>(std::move(members));
}

size_t Json::size() const {
  if (is_array()) return elements().size();
  return is_object() ? items().size() : 0;
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const auto found = items().find(key);
  return found == items().end() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) throw std::out_of_range("no key " + std::string(key));
  return *found;
}

Json& Json::operator[](const std::string& key) {
  if (is_null()) value_ = Held<Object>();
  return items()[key];
}

void Json::erase(std::string_view key) {
  const auto found = items().find(key);
  if (found != items().end()) items().erase(found);
}

void Json::merge_patch(const Json& patch) {
  if (!patch.is_object()) {
    *this = patch;
    return;
  }
  if (!is_object()) value_ = Held<Object>();
  for (const auto& [key, value] : patch.items()) {
    if (value.is_null()) {
      erase(key);
    } else {
      (*this)[key].merge_patch(value);
    }
  }
}

std::string Json::dump() const {
  std::string text;
  const char* separator = "";
  if (is_array()) {
    for (const Json& element : elements()) {
      text += separator + element.dump();
      separator = ",";
    }
    return "[" + text + "]";
  }
  if (is_object()) {
    for (const auto& [key, value] : items()) {
      text += separator + scalar_text(key) + ":" + value.dump();
      separator = ",";
    }
    return "{" + text + "}";
  }
  if (is_string()) return scalar_text(this->text());
  if (is_null()) return "null";
  if (is_boolean()) return get<bool>() ? "true" : "false";
  if (holds<int64_t>()) return std::to_string(get<int64_t>());
  return holds<uint64_t>() ? std::to_string(get<uint64_t>()) : scalar_text(get<double>());
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number() && a.value_.index() != b.value_.index()) {
    return a.get<double>() == b.get<double>() && !(a.is_number_integer() && b.is_number_integer());
  }
  if (a.value_.index() != b.value_.index()) return false;
  if (a.is_string()) return a.text() == b.text();
  if (a.is_array()) return a.elements() == b.elements();
  if (a.is_object()) return a.items() == b.items();
  if (a.is_boolean()) return a.get<bool>() == b.get<bool>();
  if (a.is_number_unsigned()) return a.get<uint64_t>() == b.get<uint64_t>();
  if (a.is_number_integer()) return a.get<int64_t>() == b.get<int64_t>();
  return a.is_null() || a.get<double>() == b.get<double>();
}

}  // namespace moe
