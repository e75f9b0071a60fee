#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe::jinja {

Value Evaluator::filter(const Node& node) {
  const Value value = evaluate(node.a);
  Arguments arguments(allocator_);
  read_arguments(node, arguments);
  if (!ok()) return {};
  line_ = node.line;
  const std::string_view name = program_.view(node.text);
  bool known = true;
  const Value result = simple_filter(name, value, arguments, &known);
  if (known || !ok()) return result;
  if (name == "selectattr" || name == "rejectattr") {
    return select(value, arguments, name == "selectattr");
  }
  if (name == "map") return map_attribute(value, arguments);
  if (name == "items") return items_of(value);
  return fail_unknown("filter", name);
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
  if (name == "tojson") {
    if (!arguments.values.empty()) return fail(MOE_ERR_UNSUPPORTED, "tojson with arguments");
    return json(value);
  }
  if (name == "string") return as_text(value);
  if (name == "safe") return value;
  if (name == "join") return join(value, argument(arguments, 0, "d"));
  if (name == "list") {
    return value.is(Kind::kList) ? value : fail_kind("the filter list", value);
  }
  if (name == "first" || name == "last") {
    if (!value.is(Kind::kList) && !value.is(Kind::kString)) return fail_kind("first, last", value);
    if (value.b == 0) return {};
    return member(value, int_value(name == "first" ? 0 : -1), false);
  }
  if (name == "int" || name == "abs") {
    if (!value.is(Kind::kInt)) return fail_kind("a number's filter", value);
    const bool turns = name == "abs" && value.number < 0;
    return turns ? arithmetic("-", int_value(0), value) : value;
  }
  const bool of_text = name == "trim" || name == "upper" || name == "lower" ||
                       name == "capitalize" || name == "replace";
  if (!of_text) {
    *known = false;
    return {};
  }
  const Value text = as_text(value);
  if (!ok()) return {};
  if (name == "trim") return strip(text, argument(arguments, 0, "chars"), true, true);
  if (name == "replace") {
    const Value count = argument(arguments, 2, "count");
    return replace(text, argument(arguments, 0, "old"), argument(arguments, 1, "new"),
                   count.is(Kind::kInt) ? count.number : -1);
  }
  return change_case(text, name != "lower", name == "capitalize");
}

// selectattr(name[, test[, argument]])
Value Evaluator::select(Value list, const Arguments& arguments, bool keep_if) {
  const Value attribute = argument(arguments, 0, "");
  const Value test_name = argument(arguments, 1, "");
  if (!truth(list)) return new_list(Array<Value>(allocator_));  // nothing to select from
  if (!list.is(Kind::kList)) return fail_kind("selectattr", list);
  if (!attribute.is(Kind::kString)) return fail_kind("selectattr", attribute);
  Array<Value> out(allocator_);
  std::span<const Value> rest;
  if (arguments.values.size() > 2) {
    rest = {arguments.values.data() + 2, arguments.values.size() - 2};
  }
  for (uint32_t i = 0; i < list.b && charge(0); ++i) {
    const Value item = heap_.items[list.a + i];
    const Value value = member(item, attribute, true);
    const bool yes =
        test_name.is(Kind::kString) ? test(heap_.view(test_name), value, rest) : truth(value);
    if (yes == keep_if) keep(out.push(item));
  }
  return new_list(out);
}

Value Evaluator::map_attribute(Value list, const Arguments& arguments) {
  const bool named = arguments.names.size() == 1 && heap_.view(arguments.names[0]) == "attribute";
  if (!named) return fail(MOE_ERR_UNSUPPORTED, "map without attribute=");
  if (!list.is(Kind::kList)) return fail_kind("map", list);
  Array<Value> out(allocator_);
  for (uint32_t i = 0; i < list.b && ok(); ++i) {
    keep(out.push(member(heap_.items[list.a + i], arguments.values[0], true)));
  }
  return new_list(out);
}

// As json.dumps(value, ensure_ascii=False).
Value Evaluator::json(Value value) {
  const size_t begin = heap_.text.size();
  put_json(value, 0);
  return since(begin);
}

void Evaluator::put_json(Value value, int depth) {
  if (!ok()) return;
  if (depth > 16) {
    fail(MOE_ERR_UNSUPPORTED, "tojson of more than 16 levels");
    return;
  }
  if (value.is(Kind::kString)) return put_json_text(value);
  if (value.is(Kind::kInt)) {
    as_text(value);  // written at the growing end of the result
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
    if (i > 0) put(", ", 0);
    if (!is_list) {
      put_json_text(heap_.entries[value.a + i].key);
      put(": ", 0);
    }
    put_json(is_list ? heap_.items[value.a + i] : heap_.entries[value.a + i].value, depth + 1);
  }
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
