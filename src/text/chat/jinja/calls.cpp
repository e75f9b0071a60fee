#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe::jinja {

void Evaluator::read_arguments(const Node& node, Arguments& out) {
  for (uint32_t i = 0; i < node.count && ok(); ++i) {
    const Node& given = node_at(child(node, i));
    const bool named = given.op == Op::kKeyword;
    keep(out.values.push(evaluate(named ? given.a : child(node, i))));
    keep(out.names.push(named ? given.text : Text{}));
  }
}

Value Evaluator::call(const Node& node) {
  const Node& callee = node_at(node.a);
  if (callee.op == Op::kAttribute) {
    const Value object = evaluate(callee.a);
    Arguments arguments(allocator_);
    read_arguments(node, arguments);
    if (!ok()) return {};
    line_ = node.line;
    const std::string_view name = program_.view(callee.text);
    bool known = true;
    const Value result = method(object, name, arguments, &known);
    if (known || !ok()) return result;
    if (object.is(Kind::kUndefined)) return fail_kind("a method", object);
    return fail_unknown("method", name);
  }
  const Value function = evaluate(node.a);
  Arguments arguments(allocator_);
  read_arguments(node, arguments);
  if (!ok()) return {};
  line_ = node.line;
  if (function.is(Kind::kMacro)) return call_macro(node, function, arguments);
  if (function.is(Kind::kFunction)) return call_function(node, function, arguments);
  if (function.is(Kind::kUndefined) && callee.op == Op::kName) {
    return fail_unknown("function", program_.view(callee.text));
  }
  return fail_kind("a call", function);
}

Value Evaluator::call_function(const Node& node, Value function, const Arguments& arguments) {
  line_ = node.line;
  const Value first = argument(arguments, 0, "");
  switch (function.a) {
    case kRaise: {
      const std::string_view text =
          first.is(Kind::kString) ? slice(heap_.view(first), 0, 300) : std::string_view("no text");
      return fail(MOE_ERR_TEXT, "the template refuses the conversation: %.*s",
                  static_cast<int>(text.size()), text.data());
    }
    case kDate:
      if (!first.is(Kind::kString)) return fail_kind("strftime_now", first);
      return format_date(heap_.view(first));
    case kNamespaceOf:
      return call_namespace(arguments);
    case kRange:
      return range(arguments);
    default: {
      Array<Entry> entries(allocator_);
      for (size_t i = 0; i < arguments.values.size(); ++i) {
        if (arguments.names[i].size == 0) return fail_kind("dict", arguments.values[i]);
        keep(entries.push({text_value(arguments.names[i]), arguments.values[i]}));
      }
      Value out;
      if (ok()) keep(make_dict(entries, &out));
      return out;
    }
  }
}

Value Evaluator::call_namespace(const Arguments& arguments) {
  const uint32_t owner = n_namespaces_++;
  constexpr size_t kMaxMembers = 4096;
  for (size_t i = 0; i < arguments.values.size() && ok(); ++i) {
    if (arguments.names[i].size == 0) return fail_kind("namespace", arguments.values[i]);
    if (members_.size() >= kMaxMembers) {
      return fail(MOE_ERR_TOO_LONG, "more than %zu values in namespaces", kMaxMembers);
    }
    keep(members_.push({owner, arguments.names[i], arguments.values[i]}));
  }
  return {Kind::kNamespace, owner, 0, 0};
}

Value Evaluator::range(const Arguments& arguments) {
  int64_t parts[3] = {0, 0, 1};
  const size_t n = arguments.values.size();
  if (n < 1 || n > 3) return fail(MOE_ERR_TEXT, "range: expected 1 to 3 arguments, found %zu", n);
  for (size_t i = 0; i < n; ++i) {
    if (!arguments.values[i].is(Kind::kInt)) return fail_kind("range", arguments.values[i]);
    parts[n == 1 ? 1 : i] = arguments.values[i].number;
  }
  if (parts[2] == 0) return fail(MOE_ERR_TEXT, "range: the step is 0");
  Array<Value> items(allocator_);
  constexpr size_t kMost = 100000;
  int64_t at = parts[0];
  while (ok() && (parts[2] > 0 ? at < parts[1] : at > parts[1])) {
    if (items.size() == kMost) return fail(MOE_ERR_TOO_LONG, "range: more than %zu numbers", kMost);
    keep(items.push(int_value(at)));
    if (__builtin_add_overflow(at, parts[2], &at)) break;
  }
  return new_list(items);
}

// A macro sees its parameters and the top level; its output is its value.
Value Evaluator::call_macro(const Node& node, Value macro, const Arguments& arguments) {
  const Node& m = node_at(macro.a);
  const size_t outer_scope = scope_begin_;
  const size_t outer_macro = macro_begin_;
  const size_t globals = n_globals_;
  const size_t first = variables_.size();
  if (arguments.values.size() > m.count) {
    return fail(MOE_ERR_TEXT, "a macro with %u parameters gets %zu arguments", m.count,
                arguments.values.size());
  }
  Array<Variable> parameters(allocator_);
  for (uint32_t i = 0; i < m.count && ok(); ++i) {
    const Node& parameter = node_at(child(m, i));
    Value value = argument(arguments, i, program_.view(parameter.text));
    if (value.is(Kind::kUndefined) && parameter.a != kNoNode) value = evaluate(parameter.a);
    keep(parameters.push({parameter.text, value}));
  }
  if (outer_scope == 0) n_globals_ = first;
  scope_begin_ = first;
  macro_begin_ = first;
  for (const Variable& v : parameters) define(v.name, v.value);
  const Value result = ok() ? captured(m.a) : Value{};
  while (variables_.size() > first) variables_.pop();
  scope_begin_ = outer_scope;
  macro_begin_ = outer_macro;
  n_globals_ = globals;
  if (ok()) line_ = node.line;
  return result;
}

}  // namespace moe::jinja
