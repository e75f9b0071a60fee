// SPDX-License-Identifier: MIT
// Evaluates expressions of templates: names, members, slices, arithmetic, comparisons, with
// Python's results.
#include "src/text/chat/jinja/evaluator.h"
#include "src/text/chat/jinja/number.h"

namespace moe::jinja {

Value Evaluator::evaluate(uint32_t index) {
  if (!charge(0)) return {};
  if (depth_ >= limits_.max_depth) {
    return fail(MOE_ERR_UNSUPPORTED, "more than %d levels in each other", limits_.max_depth);
  }
  const Node& node = node_at(index);
  line_ = node.line;
  ++depth_;
  const Value value = evaluate_inner(node);
  --depth_;
  return ok() ? value : Value{};
}

Value Evaluator::evaluate_inner(const Node& node) {
  switch (node.op) {
    case Op::kMacro:  // of a call block
      return macro_value(static_cast<uint32_t>(&node - program_.nodes.data()));
    case Op::kString:
      return text_value(node.text);
    case Op::kInt:
      return int_value(node.number);
    case Op::kFloat:
      return {Kind::kFloat, 0, 0, node.number};
    case Op::kTrue:
    case Op::kFalse:
      return bool_value(node.op == Op::kTrue);
    case Op::kName:
      return lookup(node.text);
    case Op::kList:
      return literal_list(node);
    case Op::kDict:
      return literal_dict(node);
    case Op::kAttribute:
      return member(evaluate(node.a), text_value(node.text), true);
    case Op::kItem: {
      const Value object = evaluate(node.a);
      return member(object, evaluate(node.b), false);
    }
    case Op::kSlice:
      return slice_of(evaluate(node.a), node);
    case Op::kCall:
      return call(node);
    case Op::kFilter:
      return filter(node);
    case Op::kTest: {
      const Value value = evaluate(node.a);
      Arguments arguments(allocator_);
      read_arguments(node, arguments);
      if (!ok()) return {};
      return bool_value(test(program_.view(node.text), value, arguments.values.span()));
    }
    case Op::kNot:
      return bool_value(!truth(evaluate(node.a)));
    case Op::kSign: {
      const Value value = evaluate(node.a);
      const bool minus = node.number < 0;
      if (value.is(Kind::kFloat)) return minus ? float_value(-float_of(value)) : value;
      if (!is_integer(value)) return fail_kind(minus ? "a minus sign" : "a plus sign", value);
      return arithmetic(minus ? "-" : "+", int_value(0), value);
    }
    case Op::kAnd:
    case Op::kOr: {
      const Value left = evaluate(node.a);
      return truth(left) == (node.op == Op::kAnd) ? evaluate(node.b) : left;
    }
    case Op::kChoice:
      return choice(node);
    case Op::kBinary:
      return binary(node);
    case Op::kCompare:
      return compare_chain(node);
    case Op::kCapture: {
      const size_t n_before = scopes_.size();
      push_scope(scope());
      const Value text = ok() ? captured(node.a) : Value{};
      while (scopes_.size() > n_before) pop_scope();
      return text;
    }
    case Op::kUnsupported:
      return fail_unsupported(node);
    default:
      return none_value();
  }
}

Value Evaluator::choice(const Node& node) {
  const bool yes = truth(evaluate(child(node, 0)));
  if (yes) return evaluate(child(node, 1));
  return child(node, 2) == kNoNode ? Value{} : evaluate(child(node, 2));
}

// Innermost scope first, then those around it in the template.
Value Evaluator::lookup(Text name) {
  const std::string_view wanted = heap_.view(name);
  for (uint32_t at = scope(); ok(); at = scopes_[at].parent) {
    const size_t end = at + 1 < scopes_.size() ? scopes_[at + 1].first : variables_.size();
    charge(kLook * (end - scopes_[at].first));
    for (size_t i = end; i-- > scopes_[at].first && ok();) {
      if (same(variables_[i].name, wanted)) return variables_[i].value;
    }
    if (at == 0) break;
  }
  return {Kind::kUndefined, name.begin, name.size, 0};
}

Value Evaluator::literal_list(const Node& node) {
  Array<Value> items(allocator_);
  for (uint32_t i = 0; i < node.count && ok(); ++i) keep(items.push(evaluate(child(node, i))));
  return new_list(items);
}

Value Evaluator::literal_dict(const Node& node) {
  Array<Entry> entries(allocator_);
  for (uint32_t i = 0; i < node.count && ok(); i += 2) {
    const Value key = evaluate(child(node, i));
    if (ok() && !key.is(Kind::kString)) return fail_kind("the key of a mapping", key);
    const Value value = evaluate(child(node, i + 1));
    size_t at = 0;  // of an earlier entry with this key, whose place it takes
    while (at < entries.size() && ok() && !same(text_of(entries[at].key), heap_.view(key))) ++at;
    if (!ok()) return {};
    if (at < entries.size()) {
      entries[at].value = value;
    } else {
      keep(entries.push({key, value}));
    }
  }
  Value out;
  if (ok()) keep(make_dict(entries, &out));
  return out;
}

Value Evaluator::loop_member(const Loop& loop, std::string_view name) {
  const int64_t i = loop.index;
  const int64_t n = loop.items.b;
  if (name == "index") return int_value(i + 1);
  if (name == "index0") return int_value(i);
  if (name == "first") return bool_value(i == 0);
  if (name == "last") return bool_value(i + 1 == n);
  if (name == "length") return int_value(n);
  if (name == "depth") return int_value(loop.level);
  if (name == "depth0") return int_value(loop.level - 1);
  if (name == "revindex") return int_value(n - i);
  if (name == "revindex0") return int_value(n - i - 1);
  if (name == "previtem") return i > 0 ? heap_.items[loop.items.a + loop.index - 1] : Value{};
  if (name == "nextitem") return i + 1 < n ? heap_.items[loop.items.a + loop.index + 1] : Value{};
  return fail_unknown("part of 'loop'", name);
}

Evaluator::Member* Evaluator::find_member(uint32_t owner, Text name) {
  charge(kLook * members_.size());
  for (Member& m : members_) {
    if (m.owner == owner && same(m.name, heap_.view(name))) return &m;
  }
  return nullptr;
}

// object.key and object[key]; undefined if missing.
Value Evaluator::member(Value object, Value key, bool attribute) {
  if (!ok()) return {};
  const Value missing = key.is(Kind::kString) ? Value{Kind::kUndefined, key.a, key.b, 0} : Value{};
  if (object.is(Kind::kDict) && key.is(Kind::kString)) {
    charge(kLook * object.b);
    for (uint32_t i = object.b; i > 0 && ok(); --i) {  // the last one wins
      const Entry& e = heap_.entries[object.a + i - 1];
      if (same(text_of(e.key), heap_.view(key))) return e.value;
    }
    return missing;
  }
  if (object.is(Kind::kNamespace) && key.is(Kind::kString)) {
    const Member* found = find_member(object.a, text_of(key));
    return found == nullptr ? missing : found->value;
  }
  if (object.is(Kind::kLoop) && object.a < loops_.size() && key.is(Kind::kString)) {
    return loop_member(loops_[object.a], heap_.view(key));
  }
  if (object.is(Kind::kUndefined)) return fail_kind("looking into a value", object);
  if (attribute || !key.is(Kind::kInt)) return missing;
  if (object.is(Kind::kList)) {
    const int64_t i = key.number < 0 ? key.number + object.b : key.number;
    if (i < 0 || i >= object.b) return {};
    return heap_.items[object.a + static_cast<uint32_t>(i)];
  }
  if (object.is(Kind::kString)) {
    const int64_t n = length(object);
    const int64_t i = key.number < 0 ? key.number + n : key.number;
    return i < 0 || i >= n ? Value{} : slice_text(object, i, i + 1, 1);
  }
  return missing;
}

// As in Python, bounds outside the sequence are clamped.
Value Evaluator::slice_of(Value object, const Node& node) {
  if (!ok()) return {};
  if (!object.is(Kind::kList) && !object.is(Kind::kString)) return fail_kind("a slice", object);
  int64_t given[3] = {0, 0, 1};
  bool has[3] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    if (child(node, i) == kNoNode) continue;
    const Value value = evaluate(child(node, i));
    if (!ok()) return {};
    if (value.is(Kind::kNone)) continue;
    if (!value.is(Kind::kInt)) return fail_kind("a slice", value);
    given[i] = value.number;
    has[i] = true;
  }
  if (given[2] == 0) return fail(MOE_ERR_TEXT, "a slice with step 0");
  const int64_t n = object.is(Kind::kList) ? object.b : length(object);
  const int64_t step = std::clamp(given[2], -n - 1, n + 1);  // larger steps leave the sequence too
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? n : n - 1;
  const auto place = [&](int i, int64_t otherwise) {
    if (!has[i]) return otherwise;
    const int64_t at = given[i] < 0 ? given[i] + n : given[i];
    return std::clamp(at, low, high);
  };
  const int64_t begin = place(0, step > 0 ? low : high);
  const int64_t end = place(1, step > 0 ? high : low);
  if (object.is(Kind::kString)) return slice_text(object, begin, end, step);
  Array<Value> items(allocator_);
  for (int64_t i = begin; ok() && (step > 0 ? i < end : i > end); i += step) {
    keep(items.push(heap_.items[object.a + static_cast<uint32_t>(i)]));
  }
  return new_list(items);
}

Value Evaluator::binary(const Node& node) {
  const Value left = evaluate(node.a);
  const Value right = evaluate(node.b);
  if (!ok()) return {};
  line_ = node.line;
  const std::string_view op = program_.view(node.text);
  if (op == "~") {
    const Value text = as_text(left);
    return concatenate(text, as_text(right));
  }
  return arithmetic(op, left, right);
}

bool Evaluator::compare(std::string_view op, Value left, Value right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  if (op == "in") return contains(right, left);
  if (is_number(left) && is_number(right)) {
    const int order = compare_numbers(left, right);  // 2: NaN, which has none
    if (op == "<") return order == -1;
    if (op == ">") return order == 1;
    return order == 0 || order == (op == "<=" ? -1 : 1);
  }
  if (op == "<") return less(left, right);
  if (op == ">") return less(right, left);
  return op == "<=" ? !less(right, left) : !less(left, right);
}

// a < b < c is a < b and b < c, with each value evaluated once and only if it is needed.
Value Evaluator::compare_chain(const Node& node) {
  Value left = evaluate(child(node, 0));
  for (uint32_t i = 1; i < node.count && ok(); ++i) {
    const Node& operand = node_at(child(node, i));
    const Value right = evaluate(operand.a);
    if (!ok()) return {};
    line_ = operand.line;
    const bool yes = compare(program_.view(operand.text), left, right) != (operand.number != 0);
    if (!yes) return bool_value(false);
    left = right;
  }
  return bool_value(true);
}

Value Evaluator::arithmetic(std::string_view op, Value left, Value right) {
  if (op == "+" && left.is(Kind::kString) && right.is(Kind::kString)) {
    return concatenate(left, right);
  }
  if (op == "+" && left.is(Kind::kList) && right.is(Kind::kList)) {
    Array<Value> items(allocator_);
    for (const Value& v : heap_.list(left)) keep(items.push(v));
    for (const Value& v : heap_.list(right)) keep(items.push(v));
    return new_list(items);
  }
  if (op == "*" && is_integer(left) && (right.is(Kind::kString) || right.is(Kind::kList))) {
    return repeated(right, left.number);
  }
  if (op == "*" && is_integer(right) && (left.is(Kind::kString) || left.is(Kind::kList))) {
    return repeated(left, right.number);
  }
  char what[24] = "the operator ";
  for (size_t i = 0; i < op.size() && i < 8; ++i) what[13 + i] = op[i];
  if (!is_number(left)) return fail_kind(what, left);
  if (!is_number(right)) return fail_kind(what, right);
  if (op == "**") return power(left, right);
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && to_double(right) == 0) return fail(MOE_ERR_TEXT, "a division by zero");
  const bool whole = op != "/" && is_integer(left) && is_integer(right);
  return whole ? integers(op, left.number, right.number)
               : fractions(op, to_double(left), to_double(right));
}

Value Evaluator::integers(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &out);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &out);
  if (op == "*") overflow = __builtin_mul_overflow(a, b, &out);
  if (op == "//" || op == "%") {
    if (b == -1) {
      overflow = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &out);
    } else {
      const int64_t rest = a % b;
      const bool down = rest != 0 && (rest < 0) != (b < 0);  // rounds down like Python
      out = op == "//" ? a / b - (down ? 1 : 0) : rest + (down ? b : 0);
    }
  }
  if (overflow) return fail(MOE_ERR_TEXT, "a number that is too large");
  return int_value(out);
}

Value Evaluator::fractions(std::string_view op, double a, double b) {
  if (op == "+") return float_value(a + b);
  if (op == "-") return float_value(a - b);
  if (op == "*") return float_value(a * b);
  if (op == "/") return float_value(a / b);
  charge(16384);  // the two below may take 8 microseconds
  return float_value(op == "//" ? floor_divide(a, b) : modulo(a, b));
}

// By repeated products. Of fractions only the last product may be rounded: more roundings would not
// be Python's result.
Value Evaluator::power(Value base, Value exponent) {
  constexpr int64_t kMost = 1023;
  const bool supported =
      is_integer(exponent) && exponent.number <= kMost && exponent.number >= -kMost;
  if (!supported) return fail(MOE_ERR_UNSUPPORTED, "this exponent of **");
  const bool below = exponent.number < 0;
  constexpr int64_t kTwo53 = int64_t{1} << 53;
  bool exact = true;
  Value out = int_value(1);
  for (int64_t n = below ? -exponent.number : exponent.number; n > 0 && charge(0); --n) {
    if (!exact) return fail(MOE_ERR_UNSUPPORTED, "this exponent of ** for a fraction");
    const Value before = out;
    out = arithmetic("*", out, base);
    if (ok() && base.is(Kind::kFloat)) {
      exact = is_product(to_double(before), float_of(base), to_double(out));
    }
  }
  const bool rounded = !exact || (is_integer(out) && (out.number > kTwo53 || out.number < -kTwo53));
  if (ok() && below && rounded) return fail(MOE_ERR_UNSUPPORTED, "this exponent of **");
  return below ? arithmetic("/", int_value(1), out) : out;
}

Value Evaluator::repeated(Value value, int64_t times) {
  Array<Value> items(allocator_);
  const size_t begin = heap_.text.size();
  if (value.b == 0) return value;
  for (int64_t i = 0; i < times && ok(); ++i) {
    if (value.is(Kind::kString)) {
      put(value);
      continue;
    }
    charge(value.b * sizeof(Value));
    if (items.size() + value.b > limits_.max_items) {
      return fail(MOE_ERR_TOO_LONG, "more than %zu items", limits_.max_items);
    }
    for (uint32_t k = 0; k < value.b; ++k) keep(items.push(heap_.items[value.a + k]));
  }
  return value.is(Kind::kString) ? since(begin) : new_list(items);
}

}  // namespace moe::jinja
