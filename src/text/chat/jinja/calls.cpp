// SPDX-License-Identifier: MIT
// Evaluates calls in templates: arguments, functions, macros, namespaces, recursive loops.
#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe::jinja {

void Evaluator::read_arguments(const Node& node, Arguments& out) {
  for (uint32_t i = 0; i < node.count && ok(); ++i) {
    const Node& given = node_at(child(node, i));
    if (given.op == Op::kSpread) {
      spread(given, out);
      continue;
    }
    const bool named = given.op == Op::kKeyword;
    keep(out.values.push(evaluate(named ? given.a : child(node, i))));
    keep(out.names.push(named ? given.text : Text{}));
  }
}

// *list and **mapping.
void Evaluator::spread(const Node& node, Arguments& out) {
  const Value all = evaluate(node.a);
  if (!ok()) return;
  if (node.number == 2) {
    if (!all.is(Kind::kDict)) {
      fail_kind("** before a value", all);
      return;
    }
    for (uint32_t i = 0; i < all.b && charge(0); ++i) {
      const Entry& e = heap_.entries[all.a + i];
      keep(out.values.push(e.value));
      keep(out.names.push(text_of(e.key)));
    }
    return;
  }
  const Value items = iterable(all, "* before a value");
  for (uint32_t i = 0; i < items.b && charge(0); ++i) {
    keep(out.values.push(heap_.items[items.a + i]));
    keep(out.names.push(Text{}));
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
    const Value held = held_function(object, callee.text);
    if (!held.is(Kind::kUndefined)) return call_value(node, held, arguments);
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
  return call_value(node, function, arguments);
}

// A macro or function that a namespace holds.
Value Evaluator::held_function(Value object, Text name) {
  if (!object.is(Kind::kNamespace)) return {};
  const Member* found = find_member(object.a, name);
  return found == nullptr ? Value{} : found->value;
}

Value Evaluator::call_value(const Node& node, Value function, const Arguments& arguments) {
  const Node& callee = node_at(node.a);
  line_ = node.line;
  if (function.is(Kind::kMacro)) return call_macro(node, function, arguments);
  if (function.is(Kind::kLoop)) return call_loop(node, function, arguments);
  if (function.is(Kind::kFunction)) return call_function(node, function, arguments);
  if (function.is(Kind::kUndefined) && callee.op == Op::kName) {
    return fail_unknown("function", program_.view(callee.text));
  }
  return fail_kind("a call", function);
}

Value Evaluator::call_function(const Node& node, Value function, const Arguments& arguments) {
  line_ = node.line;
  static constexpr std::string_view kNames[] = {"raise_exception", "strftime_now", "", "range", ""};
  const bool fits =
      function.a > kRange || check_arguments("function", kNames[function.a], arguments);
  if (!fits) return {};
  const Value first = argument(arguments, 0, function.a == kRaise ? "message" : "format");
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

// loop(items) of a recursive loop: its output over them.
Value Evaluator::call_loop(const Node& node, Value loop, const Arguments& arguments) {
  if (loop.a >= loops_.size() || arguments.values.size() != 1) return fail_kind("a call", loop);
  const Loop outer = loops_[loop.a];
  if (node_at(outer.node).number == 0) {
    return fail(MOE_ERR_TEXT, "a loop that calls itself is not marked as recursive");
  }
  const Value items = iterable(arguments.values[0], "a loop");
  const size_t begin = out_.size();
  if (!ok()) return {};
  if (++depth_ > limits_.max_depth) {
    return fail(MOE_ERR_UNSUPPORTED, "more than %d levels in each other", limits_.max_depth);
  }
  run_loop(outer.node, items, outer.scope, outer.level + 1);
  --depth_;
  if (!ok()) return {};
  line_ = node.line;
  return cut_output(begin);
}

// Binds parameters in order: a default may read those before it.
void Evaluator::bind_parameters(const Node& m, const Arguments& arguments) {
  Array<Value> rest(allocator_);
  Array<Entry> named(allocator_);
  Value caller;
  bool has_caller = false;
  const auto has_parameter = [&](std::string_view name) {
    for (uint32_t k = 0; k < m.count && ok(); ++k) {
      if (same(node_at(child(m, k)).text, name)) return true;
    }
    return false;
  };
  for (size_t i = 0; i < arguments.values.size() && ok(); ++i) {
    const Text name = arguments.names[i];
    const std::string_view view = heap_.view(name);
    const bool of_parameter = name.size == 0 ? i < m.count : has_parameter(view);
    if (of_parameter) continue;
    if (name.size != 0 && view == "caller" && (m.number & kReadsCaller) != 0) {
      caller = arguments.values[i];
      has_caller = true;
    } else if (name.size == 0 && (m.number & kReadsVarargs) != 0) {
      keep(rest.push(arguments.values[i]));
    } else if (name.size != 0 && (m.number & kReadsKwargs) != 0) {
      keep(named.push({text_value(name), arguments.values[i]}));
    } else if (name.size != 0) {
      fail(MOE_ERR_TEXT, "a macro gets the argument '%.*s', which it does not take",
           static_cast<int>(std::min<size_t>(view.size(), 60)), view.data());
    } else {
      fail(MOE_ERR_TEXT, "a macro with %u parameters gets %zu arguments", m.count,
           arguments.values.size());
    }
  }
  for (uint32_t i = 0; i < m.count && ok(); ++i) {
    const Node& parameter = node_at(child(m, i));
    Value value = argument(arguments, i, program_.view(parameter.text));
    if (value.is(Kind::kUndefined) && parameter.a != kNoNode) value = evaluate(parameter.a);
    define(parameter.text, value);
  }
  if (has_caller) define(text_of(literal("caller")), caller);
  if ((m.number & kReadsVarargs) != 0) define(text_of(literal("varargs")), new_list(rest));
  if ((m.number & kReadsKwargs) != 0 && ok()) {
    Value all;
    keep(make_dict(named, &all));
    define(text_of(literal("kwargs")), all);
  }
}

// A macro sees its parameters and what surrounds it in the template; its output is its value.
Value Evaluator::call_macro(const Node& node, Value macro, const Arguments& arguments) {
  const Node& m = node_at(macro.a);
  if (macro.b >= scopes_.size() || scopes_[macro.b].serial != macro.number) {
    return fail(MOE_ERR_UNSUPPORTED, "calling a macro after the block around it has ended");
  }
  const size_t n_before = scopes_.size();
  push_scope(macro.b);
  if (ok()) bind_parameters(m, arguments);
  const Value result = ok() ? captured(m.a) : Value{};
  while (scopes_.size() > n_before) pop_scope();
  if (ok()) line_ = node.line;
  return result;
}

}  // namespace moe::jinja
