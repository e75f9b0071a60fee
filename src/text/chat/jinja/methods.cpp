// SPDX-License-Identifier: MIT
// The methods of Python's strings and mappings that templates call, and strftime for the date.
#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe::jinja {

Value Evaluator::method(Value object, std::string_view name, const Arguments& arguments,
                        bool* known) {
  const bool has_methods = object.is(Kind::kString) || object.is(Kind::kDict);
  if (has_methods && !check_arguments("method", name, arguments)) return {};
  if (object.is(Kind::kString)) return string_method(object, name, arguments, known);
  if (object.is(Kind::kLoop) && object.a < loops_.size() && name == "cycle") {
    const size_t n = arguments.values.size();
    return n == 0 ? fail_kind("cycle", object) : arguments.values[loops_[object.a].index % n];
  }
  if (object.is(Kind::kDict)) return dict_method(object, name, arguments, known);
  *known = false;
  return {};
}

Value Evaluator::string_method(Value object, std::string_view name, const Arguments& arguments,
                               bool* known) {
  const Value a = argument(arguments, 0, name == "split" ? "sep" : "");
  const Value b = argument(arguments, 1, "");
  const auto number = [&](size_t position, const char* parameter) {
    const Value v = argument(arguments, position, parameter);
    if (v.is(Kind::kInt)) return v.number;
    if (!v.is(Kind::kUndefined)) fail_kind(parameter, v);
    return int64_t{-1};
  };
  if (name == "strip") return strip(object, a, Ends::kBoth);
  if (name == "lstrip") return strip(object, a, Ends::kLeft);
  if (name == "rstrip") return strip(object, a, Ends::kRight);
  if (name == "split") return split(object, a, number(1, "maxsplit"));
  if (name == "replace") return replace(object, a, b, number(2, "count"));
  if (name == "upper") return change_case(object, Case::kUpper);
  if (name == "lower") return change_case(object, Case::kLower);
  if (name == "capitalize") return change_case(object, Case::kCapitalized);
  if (name == "title") return title(object, false);
  if (name == "join") return join(a, object, {});
  if (name == "find") return find_in(object, arguments);
  if (name == "startswith" || name == "endswith") {
    return begins_or_ends(object, name == "startswith", arguments);
  }
  *known = false;
  return {};
}

// Cuts `text` to the characters that the second and the third argument give, as a slice does;
// *begin is the first one. False if there are none, not even an empty text.
bool Evaluator::take_part(Value* text, const Arguments& arguments, int64_t* begin) {
  *begin = 0;
  if (arguments.values.size() < 2) return true;
  const int64_t n = length(*text);
  int64_t bounds[2] = {0, n};
  for (size_t i = 0; i < 2; ++i) {
    const Value given = argument(arguments, i + 1, "");
    if (given.is(Kind::kUndefined) || given.is(Kind::kNone)) continue;
    if (!given.is(Kind::kInt)) fail_kind("a position in a text", given);
    bounds[i] = given.number < 0 ? std::max<int64_t>(given.number + n, 0) : given.number;
  }
  bounds[1] = std::min(bounds[1], n);
  if (!ok() || bounds[0] > bounds[1]) return false;
  *begin = bounds[0];
  *text = slice_text(*text, bounds[0], bounds[1], 1);
  return ok();
}

Value Evaluator::find_in(Value text, const Arguments& arguments) {
  const Value what = argument(arguments, 0, "");
  int64_t begin = 0;
  if (!what.is(Kind::kString)) return fail_kind("find", what);
  if (!take_part(&text, arguments, &begin)) return int_value(-1);
  const size_t at = find(heap_.view(text), heap_.view(what), 0);
  if (at == std::string_view::npos) return int_value(-1);
  return int_value(begin + length(text_value(child_text(text, 0, at))));
}

// With a list, whether one of its texts fits.
Value Evaluator::begins_or_ends(Value object, bool front, const Arguments& arguments) {
  const Value parts = argument(arguments, 0, "");
  int64_t begin = 0;
  if (!take_part(&object, arguments, &begin)) return bool_value(false);
  const std::string_view text = heap_.view(object);
  const auto fits = [&](Value v) {
    const std::string_view part = v.is(Kind::kString) ? heap_.view(v) : std::string_view();
    if (!v.is(Kind::kString)) fail_kind(front ? "startswith" : "endswith", v);
    if (!charge(std::min(text.size(), part.size()))) return false;
    return front ? text.starts_with(part) : text.ends_with(part);
  };
  if (!parts.is(Kind::kList)) return bool_value(fits(parts));
  bool any = false;
  for (uint32_t i = 0; i < parts.b && ok(); ++i) any = fits(heap_.items[parts.a + i]) || any;
  return bool_value(any);
}

Value Evaluator::dict_method(Value object, std::string_view name, const Arguments& arguments,
                             bool* known) {
  if (name == "items") return items_of(object);
  if (name == "get") {
    const Value key = argument(arguments, 0, "");
    const Value found = member(object, key, false);
    if (!found.is(Kind::kUndefined)) return found;
    return arguments.values.size() > 1 ? arguments.values[1] : none_value();
  }
  if (name == "keys" || name == "values") {
    Array<Value> out(allocator_);
    for (const Entry& e : heap_.dict(object)) keep(out.push(name == "keys" ? e.key : e.value));
    return new_list(out);
  }
  *known = false;
  return {};
}

// A mapping as a list of pairs.
Value Evaluator::items_of(Value value) {
  if (value.is(Kind::kUndefined)) return new_list(Array<Value>(allocator_));
  if (!value.is(Kind::kDict)) return fail_kind("items", value);
  Array<Value> pairs(allocator_);
  for (uint32_t i = 0; i < value.b && ok(); ++i) {
    const Entry e = heap_.entries[value.a + i];
    Array<Value> pair(allocator_);
    keep(pair.push(e.key));
    keep(pair.push(e.value));
    keep(pairs.push(new_list(pair)));
  }
  return new_list(pairs);
}

// One strftime field of the date.
bool Evaluator::put_date_field(char field) {
  static constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                            "May",       "June",     "July",     "August",
                                            "September", "October",  "November", "December"};
  static constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                          "Thursday", "Friday", "Saturday"};
  char date[10] = {};
  for (uint32_t i = 0; i < 10 && i < date_.size; ++i) date[i] = heap_.view(date_)[i];
  const auto digit = [&](size_t i) { return date[i] - '0'; };
  const int month = digit(5) * 10 + digit(6);
  const int day = digit(8) * 10 + digit(9);
  int year = digit(0) * 1000 + digit(1) * 100 + digit(2) * 10 + digit(3);
  const size_t short_name = 3;
  if (field == 'B') put(kMonths[month - 1], 0);
  if (field == 'b') put(slice(kMonths[month - 1], 0, short_name), 0);
  if (field == 'Y') put({date, 4}, 0);
  if (field == 'y') put({date + 2, 2}, 0);
  if (field == 'm') put({date + 5, 2}, 0);
  if (field == 'd') put({date + 8, 2}, 0);
  if (field == '%') put("%", 0);
  if (field == 'A' || field == 'a') {
    static constexpr int kShift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};  // Sakamoto's table
    if (month < 3) --year;
    const int weekday = (year + year / 4 - year / 100 + year / 400 + kShift[month - 1] + day) % 7;
    const std::string_view name = kDays[weekday];
    put(field == 'A' ? name : slice(name, 0, short_name), 0);
  }
  return std::string_view("BbYymdAa%").find(field) != std::string_view::npos;
}

Value Evaluator::format_date(std::string_view given) {
  Array<char> format(allocator_);  // `given` is in the memory being written
  keep(format.append(given.data(), given.size()));
  const size_t begin = heap_.text.size();
  for (size_t i = 0; i < format.size() && ok(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      put({&format[i], 1}, 0);
    } else if (!put_date_field(format[++i])) {
      return fail(MOE_ERR_UNSUPPORTED, "strftime_now: the field %%%c", format[i]);
    }
  }
  return since(begin);
}

}  // namespace moe::jinja
