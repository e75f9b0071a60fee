// SPDX-License-Identifier: MIT
// Values of JSON that comes from outside, as Python's json.loads makes them.
#include "src/text/chat/jinja/evaluator.h"
#include "src/text/chat/jinja/number.h"
#include "src/text/chat/json/text.h"

namespace moe::jinja {
namespace {

bool has_fraction(std::string_view number) {
  return number.find_first_of(".eE") != std::string_view::npos;
}

}  // namespace

Status Evaluator::make_json(std::string_view json, Value* out) {
  if (json::is_string(json)) {
    String text(allocator_);
    MOE_TRY(json::read_string(json, text));
    return make_text(text.view(), true, out);
  }
  if (json::is_object(json)) return make_json_object(json, out);
  if (json::is_list(json)) {
    Array<Value> items(allocator_);
    std::string_view key;
    std::string_view item;
    for (json::Parts parts(json); parts.next(&key, &item);) {
      Value value;
      MOE_TRY(make_json(item, &value));
      MOE_TRY(items.push(value));
    }
    return make_list(items, out);
  }
  *out = json == "null" ? none_value() : bool_value(json == "true");
  if (json == "null" || json == "true" || json == "false") return {};
  return make_json_number(json, out);
}

// Integers beyond 64 bits become fractions.
Status Evaluator::make_json_number(std::string_view json, Value* out) {
  const bool minus = json.starts_with("-");
  const std::string_view digits = slice(json, minus ? 1 : 0);
  int64_t whole = 0;
  if (!has_fraction(json) && read_integer(digits, 10, &whole) == Reading::kDone) {
    *out = int_value(minus ? -whole : whole);
    return {};
  }
  double number = 0;
  if (read_float(digits, &number) != Reading::kDone) {
    return Status::error(MOE_ERR_UNSUPPORTED, "a number with more than 40 digits: '%.*s...'", 20,
                         json.data());
  }
  *out = float_value(minus ? -number : number);
  return {};
}

// As in Python, of equal keys the last one's value counts, in the place of the first.
Status Evaluator::make_json_object(std::string_view json, Value* out) {
  Array<Entry> entries(allocator_);
  std::string_view key;
  std::string_view item;
  for (json::Parts parts(json); parts.next(&key, &item);) {
    Entry entry;
    MOE_TRY(make_json(key, &entry.key));
    MOE_TRY(make_json(item, &entry.value));
    bool known = false;
    for (Entry& other : entries) {
      if (!same(text_of(other.key), heap_.view(entry.key))) continue;
      other.value = entry.value;
      known = true;
    }
    MOE_TRY(status_);
    if (!known) MOE_TRY(entries.push(entry));
  }
  return make_dict(entries, out);
}

}  // namespace moe::jinja
