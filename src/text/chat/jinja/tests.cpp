// SPDX-License-Identifier: MIT
// Truth, equality, order and membership as in Python, and the tests of templates ("x is defined").
#include "src/text/chat/jinja/evaluator.h"
#include "src/text/chat/jinja/number.h"

namespace moe::jinja {

bool Evaluator::truth(Value value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.number != 0;
    case Kind::kFloat:
      return float_of(value) != 0;
    case Kind::kString:
    case Kind::kList:
    case Kind::kDict:
      return value.b != 0;
    default:
      return true;
  }
}

bool Evaluator::equal(Value a, Value b, int depth) {
  if (!charge(0)) return false;
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.kind != b.kind) return false;
  if (a.is(Kind::kNone) || a.is(Kind::kUndefined)) return true;
  if (a.is(Kind::kString)) return same(text_of(a), heap_.view(b));
  if (a.a == b.a && a.b == b.b) return true;
  if (a.b != b.b || (!a.is(Kind::kList) && !a.is(Kind::kDict))) return false;
  if (depth > 16) {
    fail(MOE_ERR_UNSUPPORTED, "comparing values of more than 16 levels");
    return false;
  }
  for (uint32_t i = 0; i < a.b && ok(); ++i) {
    if (a.is(Kind::kList)) {
      if (!equal(heap_.items[a.a + i], heap_.items[b.a + i], depth + 1)) return false;
      continue;
    }
    const Entry& e = heap_.entries[a.a + i];
    if (!equal(e.value, member(b, e.key, false), depth + 1)) return false;
  }
  return true;
}

bool Evaluator::contains(Value container, Value value) {
  if (container.is(Kind::kUndefined)) return false;
  if (container.is(Kind::kString) && value.is(Kind::kString)) {
    return find(heap_.view(container), heap_.view(value), 0) != std::string_view::npos;
  }
  if (container.is(Kind::kDict)) {
    return value.is(Kind::kString) && !member(container, value, false).is(Kind::kUndefined);
  }
  if (container.is(Kind::kList)) {
    for (uint32_t i = 0; i < container.b && ok(); ++i) {
      if (equal(heap_.items[container.a + i], value)) return true;
    }
    return false;
  }
  fail_kind("the operator in", container.is(Kind::kString) ? value : container);
  return false;
}

bool Evaluator::less(Value a, Value b) {
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == -1;
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    // UTF-8 bytes sort like their characters.
    return charge(std::min(a.b, b.b)) && heap_.view(a) < heap_.view(b);
  }
  fail_kind("a comparison", is_number(a) || a.is(Kind::kString) ? b : a);
  return false;
}

bool Evaluator::test_kind(std::string_view name, Value v, bool* known) {
  if (name == "defined") return !v.is(Kind::kUndefined);
  if (name == "undefined") return v.is(Kind::kUndefined);
  if (name == "none") return v.is(Kind::kNone);
  if (name == "string") return v.is(Kind::kString);
  if (name == "mapping") return v.is(Kind::kDict);
  if (name == "sequence" || name == "iterable") {
    return v.is(Kind::kString) || v.is(Kind::kList) || v.is(Kind::kDict) || v.is(Kind::kUndefined);
  }
  if (name == "number") return is_number(v);
  if (name == "integer") return v.is(Kind::kInt);
  if (name == "float") return v.is(Kind::kFloat);
  if (name == "boolean") return v.is(Kind::kBool);
  if (name == "true") return v.is(Kind::kBool) && v.number != 0;
  if (name == "false") return v.is(Kind::kBool) && v.number == 0;
  if (name == "callable") {  // an undefined value too: the call fails
    return v.is(Kind::kMacro) || v.is(Kind::kFunction) || v.is(Kind::kLoop) ||
           v.is(Kind::kUndefined);
  }
  *known = false;
  return false;
}

bool Evaluator::test(std::string_view name, Value value, std::span<const Value> arguments) {
  bool known = true;
  charge(0);
  const bool kind = test_kind(name, value, &known);
  if (known) return kind;
  const bool divides = name == "divisibleby" && arguments.size() == 1;
  if (divides || name == "odd" || name == "even") {
    const Value rest = arithmetic("%", value, divides ? arguments[0] : int_value(2));
    return ok() && (compare_numbers(rest, int_value(name == "odd" ? 1 : 0)) == 0);
  }
  const bool has_one = arguments.size() == 1;
  const Value other = has_one ? arguments[0] : Value{};
  if (has_one && (name == "equalto" || name == "eq" || name == "==" || name == "sameas")) {
    return equal(value, other);
  }
  if (has_one && (name == "ne" || name == "!=")) return !equal(value, other);
  if (has_one && name == "in") return contains(other, value);
  static constexpr std::pair<std::string_view, std::string_view> kOrders[] = {
      {"lt", "<"},  {"lessthan", "<"}, {"le", "<="}, {"gt", ">"}, {"greaterthan", ">"},
      {"ge", ">="}, {"<", "<"},        {"<=", "<="}, {">", ">"},  {">=", ">="}};
  for (const auto& [called, op] : kOrders) {
    if (has_one && name == called) return compare(op, value, other);
  }
  if (name == "upper" || name == "lower") {  // as Python: a letter, and none of the other case
    const Value text = as_text(value);
    const bool upper = name == "upper";
    const Value same_case = change_case(text, upper ? Case::kUpper : Case::kLower);
    const Value other_case = change_case(text, upper ? Case::kLower : Case::kUpper);
    return ok() && equal(text, same_case) && !equal(text, other_case);
  }
  fail_unknown("test", name);
  return false;
}

}  // namespace moe::jinja
