#include "src/text/chat/jinja/evaluator.h"

namespace moe::jinja {

bool Evaluator::truth(Value value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.number != 0;
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
  const auto is_number = [](Value v) { return v.is(Kind::kInt) || v.is(Kind::kBool); };
  if (is_number(a) && is_number(b)) return a.number == b.number;
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
  const auto is_number = [](Value v) { return v.is(Kind::kInt) || v.is(Kind::kBool); };
  if (is_number(a) && is_number(b)) return a.number < b.number;
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
  if (name == "number") return v.is(Kind::kInt) || v.is(Kind::kBool);
  if (name == "integer") return v.is(Kind::kInt);
  if (name == "float") return false;
  if (name == "boolean") return v.is(Kind::kBool);
  if (name == "true") return v.is(Kind::kBool) && v.number != 0;
  if (name == "false") return v.is(Kind::kBool) && v.number == 0;
  if (name == "callable") return v.is(Kind::kMacro) || v.is(Kind::kFunction);
  *known = false;
  return false;
}

bool Evaluator::test(std::string_view name, Value value, std::span<const Value> arguments) {
  bool known = true;
  charge(0);
  const bool kind = test_kind(name, value, &known);
  if (known) return kind;
  if (name == "odd" || name == "even" || name == "divisibleby") {
    if (!value.is(Kind::kInt)) fail_kind("a test for odd, even or divisible", value);
    int64_t by = 2;
    if (name == "divisibleby") by = arguments.empty() ? 0 : arguments[0].number;
    if (by == 0) fail(MOE_ERR_TEXT, "a division by zero");
    if (!ok() || by == -1) return ok();
    return (value.number % by == 0) != (name == "odd");
  }
  const bool has_one = arguments.size() == 1;
  const Value other = has_one ? arguments[0] : Value{};
  if (has_one && (name == "equalto" || name == "eq" || name == "==" || name == "sameas")) {
    return equal(value, other);
  }
  if (has_one && (name == "ne" || name == "!=")) return !equal(value, other);
  if (has_one && name == "in") return contains(other, value);
  fail_unknown("test", name);
  return false;
}

}  // namespace moe::jinja
