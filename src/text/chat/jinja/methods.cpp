// SPDX-License-Identifier: MIT
#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe::jinja {

Value Evaluator::method(Value object, std::string_view name, const Arguments& arguments,
                        bool* known) {
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
  const Value a = argument(arguments, 0, "");
  const Value b = argument(arguments, 1, "");
  const auto number = [](Value v) { return v.is(Kind::kInt) ? v.number : int64_t{-1}; };
  if (name == "strip") return strip(object, a, true, true);
  if (name == "lstrip") return strip(object, a, true, false);
  if (name == "rstrip") return strip(object, a, false, true);
  if (name == "split") return split(object, a, number(argument(arguments, 1, "maxsplit")));
  if (name == "replace") return replace(object, a, b, number(argument(arguments, 2, "count")));
  if (name == "upper" || name == "lower") return change_case(object, name == "upper", false);
  if (name == "capitalize") return change_case(object, true, true);
  if (name == "title") return title(object, false);
  if (name == "join") return join(a, object, {});
  if (name == "find") {
    if (!a.is(Kind::kString)) return fail_kind("find", a);
    const size_t at = find(heap_.view(object), heap_.view(a), 0);
    if (at == std::string_view::npos) return int_value(-1);
    return int_value(length(text_value(child_text(object, 0, at))));
  }
  if (name == "startswith" || name == "endswith") {
    const std::string_view text = heap_.view(object);
    const bool front = name == "startswith";
    const auto fits = [&](Value v) {
      const std::string_view part = v.is(Kind::kString) ? heap_.view(v) : std::string_view();
      if (!v.is(Kind::kString)) fail_kind(front ? "startswith" : "endswith", v);
      if (!charge(std::min(text.size(), part.size()))) return false;
      return front ? text.starts_with(part) : text.ends_with(part);
    };
    if (!a.is(Kind::kList)) return bool_value(fits(a));
    bool any = false;
    for (uint32_t i = 0; i < a.b && ok(); ++i) any = fits(heap_.items[a.a + i]) || any;
    return bool_value(any);
  }
  *known = false;
  return {};
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
