// SPDX-License-Identifier: MIT
// The filters of templates ("x | trim"), and JSON as Python's json.dumps writes it.
#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"
#include "src/text/chat/jinja/number.h"

namespace moe::jinja {

Value Evaluator::filter(const Node& node) {
  const Value value = evaluate(node.a);
  Arguments arguments(allocator_);
  read_arguments(node, arguments);
  if (!ok()) return {};
  line_ = node.line;
  return apply_filter(program_.view(node.text), value, arguments);
}

Value Evaluator::apply_filter(std::string_view name, Value value, const Arguments& arguments) {
  if (!check_arguments("filter", name, arguments)) return {};
  bool known = true;
  Value result = simple_filter(name, value, arguments, &known);
  if (known || !ok()) return result;
  known = true;
  result = list_filter(name, value, arguments, &known);
  if (known || !ok()) return result;
  known = true;
  result = text_filter(name, value, arguments, &known);
  return known || !ok() ? result : fail_unknown("filter", name);
}

Value Evaluator::simple_filter(std::string_view name, Value value, const Arguments& arguments,
                               bool* known) {
  if (name == "default" || name == "d") {
    const Value other = argument(arguments, 0, "default_value");
    const bool also_false = truth(argument(arguments, 1, "boolean"));
    const bool replaced = value.is(Kind::kUndefined) || (also_false && !truth(value));
    if (!replaced) return value;
    return other.is(Kind::kUndefined) ? literal("") : other;
  }
  if (name == "length" || name == "count") return int_value(length(value));
  if (name == "tojson") return json(value, arguments);
  if (name == "string") return as_text(value);
  if (name == "safe") return value;
  if (name == "join") {
    return join(value, argument(arguments, 0, "d"), argument(arguments, 1, "attribute"));
  }
  if (name == "list") return iterable(value, "the filter list");
  if (name == "items") return items_of(value);
  if (name == "first" || name == "last") {
    if (value.is(Kind::kUndefined)) return {};
    if (value.is(Kind::kDict)) value = iterable(value, "first, last");
    if (!value.is(Kind::kList) && !value.is(Kind::kString)) return fail_kind("first, last", value);
    if (value.b == 0) return {};
    return member(value, int_value(name == "first" ? 0 : -1), false);
  }
  if (name == "int" || name == "float" || name == "abs" || name == "round") {
    return number_filter(name, value, arguments);
  }
  *known = false;
  return {};
}

Value Evaluator::text_filter(std::string_view name, Value value, const Arguments& arguments,
                             bool* known) {
  const bool cased = name == "upper" || name == "lower" || name == "capitalize";
  if (!cased && name != "trim" && name != "replace" && name != "title" && name != "indent") {
    *known = false;
    return {};
  }
  const Value text = as_text(value);
  if (!ok()) return {};
  if (name == "trim") return strip(text, argument(arguments, 0, "chars"), Ends::kBoth);
  if (name == "title") return title(text, true);
  if (name == "indent") return indent(text, arguments);
  if (name == "replace") {
    const Value count = argument(arguments, 2, "count");
    const bool all = count.is(Kind::kUndefined) || count.is(Kind::kNone);
    if (!all && !count.is(Kind::kInt)) return fail_kind("the count of replace", count);
    return replace(text, argument(arguments, 0, "old"), argument(arguments, 1, "new"),
                   all ? -1 : count.number);
  }
  if (name == "capitalize") return change_case(text, Case::kCapitalized);
  return change_case(text, name == "lower" ? Case::kLower : Case::kUpper);
}

Value Evaluator::number_filter(std::string_view name, Value value, const Arguments& arguments) {
  if (value.is(Kind::kUndefined)) return fail_kind("a number's filter", value);
  charge(32768);  // reading and rounding compare with up to 64 doubles
  const Value other = argument(arguments, 0, "default");
  const bool reads_text = name == "int" || name == "float";
  const Value given_base = name == "int" ? argument(arguments, 1, "base") : Value{};
  const int64_t base = given_base.is(Kind::kUndefined) ? 10 : given_base.number;
  const bool known_base = base == 0 || (base >= 2 && base <= 36);
  if (!given_base.is(Kind::kUndefined) && (!given_base.is(Kind::kInt) || !known_base)) {
    return fail_kind("the base of int", given_base);
  }
  if (reads_text && !is_number(value)) {
    if (value.is(Kind::kString)) {
      std::string_view text = heap_.view(strip(value, {}, Ends::kBoth));
      const bool minus = text.starts_with("-");
      if (minus || text.starts_with("+")) text.remove_prefix(1);
      double fraction = 0;
      int64_t whole = 0;
      Reading reading = Reading::kNotOne;
      if (name == "int") reading = read_integer(text, static_cast<int>(base), &whole);
      if (reading == Reading::kDone) return int_value(minus ? -whole : whole);
      if (reading == Reading::kNotOne) reading = read_float(text, &fraction);
      if (reading == Reading::kTooLong) {
        return fail(MOE_ERR_UNSUPPORTED, "the filter '%s' of a number with so many digits",
                    name == "int" ? "int" : "float");
      }
      if (reading == Reading::kDone) value = float_value(minus ? -fraction : fraction);
    }
    if (!is_number(value)) {
      if (!other.is(Kind::kUndefined)) return other;
      return name == "int" ? int_value(0) : float_value(0);
    }
  }
  if (!is_number(value)) return fail_kind("a number's filter", value);
  if (name == "float") return float_value(to_double(value));
  const double x = to_double(value);
  if (name == "int") {
    if (is_integer(value)) return int_value(value.number);
    if (!(x > -9e18 && x < 9e18)) return fail(MOE_ERR_TEXT, "a number that is too large");
    return int_value(static_cast<int64_t>(x));
  }
  if (name == "abs") {
    if (value.is(Kind::kFloat)) return float_value(x < 0 || x == 0 ? 0 - x : x);
    return value.number < 0 ? arithmetic("-", int_value(0), value) : int_value(value.number);
  }
  const Value digits = argument(arguments, 0, "precision");
  const Value method = argument(arguments, 1, "method");
  if (!digits.is(Kind::kInt) && !digits.is(Kind::kUndefined)) return fail_kind("round", digits);
  const int64_t n = digits.is(Kind::kInt) ? digits.number : 0;
  if (n < -20 || n > 20) return fail(MOE_ERR_UNSUPPORTED, "round to more than 20 digits");
  if (!method.is(Kind::kString) || heap_.view(method) == "common") {
    if (is_integer(value) && n >= 0) return int_value(value.number);
    if (is_integer(value)) return fail(MOE_ERR_UNSUPPORTED, "round of an integer's digits");
    return float_value(round_to(x, static_cast<int>(n)));
  }
  const bool up = heap_.view(method) == "ceil";
  if (!up && heap_.view(method) != "floor") return fail(MOE_ERR_TEXT, "round: unknown method");
  double power = 1;
  for (int64_t i = n < 0 ? -n : n; i > 0; --i) power *= 10;
  const double scaled = n < 0 ? x / power : x * power;
  const double whole = up ? -floor_of(-scaled) : floor_of(scaled);
  return float_value(n < 0 ? whole * power : whole / power);
}

// As json.dumps(value, ensure_ascii=False, indent=...).
Value Evaluator::json(Value value, const Arguments& arguments) {
  int64_t indent = -1;
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const Value given = arguments.values[i];
    const std::string_view name = heap_.view(arguments.names[i]);
    const bool by_default = name != "indent" && !truth(given);
    if (by_default || given.is(Kind::kNone)) continue;
    if (name != "indent" || !is_integer(given) || given.number < 0 || given.number > 64) {
      return fail(MOE_ERR_UNSUPPORTED, "an argument of tojson, other than indent=0 to 64,");
    }
    indent = given.number;
  }
  const size_t begin = heap_.text.size();
  put_json(value, 0, indent);
  return since(begin);
}

void Evaluator::put_json_line(int depth, int64_t indent) {
  if (indent < 0) return;
  put("\n", 0);
  for (int64_t i = 0; i < indent * depth && ok(); ++i) put(" ", 0);
}

void Evaluator::put_json(Value value, int depth, int64_t indent) {
  if (!ok()) return;
  if (depth > 80) {  // more than JSON from outside can have, and the messages around it
    fail(MOE_ERR_UNSUPPORTED, "tojson of more than 80 levels");
    return;
  }
  if (value.is(Kind::kString)) return put_json_text(value);
  if (value.is(Kind::kInt)) {
    as_text(value);  // written at the growing end of the result
    return;
  }
  if (value.is(Kind::kFloat)) {
    const double x = float_of(value);
    if (x != x) return put("NaN", 0);
    if (x - x != 0) return put(x > 0 ? "Infinity" : "-Infinity", 0);
    as_text(value);
    return;
  }
  if (value.is(Kind::kNone)) return put("null", 0);
  if (value.is(Kind::kBool)) return put(value.number != 0 ? "true" : "false", 0);
  if (!value.is(Kind::kList) && !value.is(Kind::kDict)) {
    fail_kind("tojson", value);
    return;
  }
  const bool is_list = value.is(Kind::kList);
  put(is_list ? "[" : "{", 0);
  for (uint32_t i = 0; i < value.b && ok(); ++i) {
    if (i > 0) put(indent < 0 ? ", " : ",", 0);
    put_json_line(depth + 1, indent);
    if (!is_list) {
      put_json_text(heap_.entries[value.a + i].key);
      put(": ", 0);
    }
    put_json(is_list ? heap_.items[value.a + i] : heap_.entries[value.a + i].value, depth + 1,
             indent);
  }
  if (value.b > 0) put_json_line(depth, indent);
  put(is_list ? "]" : "}", 0);
}

void Evaluator::put_json_text(Value text) {
  static constexpr char kFrom[] = "\"\\\n\r\t\b\f";
  static constexpr char kTo[] = "\"\\nrtbf";
  static constexpr char kHex[] = "0123456789abcdef";
  put("\"", 0);
  for (uint32_t i = 0; i < text.b && ok(); ++i) {
    const char c = heap_.text.chars[text.a + i];
    const uint8_t mark = heap_.text.marks[text.a + i];
    char escape[6] = {'\\', 'u', '0', '0', kHex[(c >> 4) & 15], kHex[c & 15]};
    size_t n = static_cast<uint8_t>(c) < 0x20 ? 6 : 0;
    for (size_t k = 0; k + 1 < sizeof kFrom; ++k) {
      if (c != kFrom[k]) continue;
      escape[1] = kTo[k];
      n = 2;
    }
    put(n == 0 ? std::string_view(&c, 1) : std::string_view(escape, n), mark);
  }
  put("\"", 0);
}

}  // namespace moe::jinja
