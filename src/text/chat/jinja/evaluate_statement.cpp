// SPDX-License-Identifier: MIT
// Executes statements of templates: if, for, set, with, macros and blocks, and their scopes.
#include "src/text/characters/utf8.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe::jinja {

Evaluator::Flow Evaluator::execute(uint32_t index) {
  const Node& node = node_at(index);
  if (!charge(0)) return Flow::kNext;
  line_ = node.line;
  if (depth_ >= limits_.max_depth) {
    fail(MOE_ERR_UNSUPPORTED, "more than %d levels in each other", limits_.max_depth);
    return Flow::kNext;
  }
  ++depth_;
  Flow flow = Flow::kNext;
  switch (node.op) {
    case Op::kData:
      if (out_.size() + node.text.size > limits_.max_text) {
        fail(MOE_ERR_TOO_LONG, "more than %zu bytes of text", limits_.max_text);
      } else if (charge(node.text.size)) {
        keep(out_.append(program_.view(node.text), 0));
      }
      break;
    case Op::kOutput: {
      const Value text = as_text(evaluate(node.a));
      if (!ok()) break;
      if (out_.size() + text.b > limits_.max_text) {
        fail(MOE_ERR_TOO_LONG, "more than %zu bytes of text", limits_.max_text);
      } else if (charge(text.b)) {
        keep(out_.append(heap_.text, text.a, text.b));
      }
      break;
    }
    case Op::kIf:
      flow = execute_if(node);
      break;
    case Op::kFor:
      flow = execute_for(index);
      break;
    case Op::kSet:
      assign(node.a, evaluate(node.b));
      break;
    case Op::kMacro:
      define(node.text, macro_value(index));
      break;
    case Op::kWith:
      flow = execute_with(node);
      break;
    case Op::kUnsupported:
      fail_unsupported(node);
      break;
    case Op::kBreak:
      flow = Flow::kBreak;
      break;
    case Op::kContinue:
      flow = Flow::kContinue;
      break;
    default:
      flow = execute_body(node);
      break;
  }
  --depth_;
  return flow;
}

Evaluator::Flow Evaluator::execute_body(const Node& node) {
  for (uint32_t i = 0; i < node.count && ok(); ++i) {
    const Flow flow = execute(child(node, i));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_if(const Node& node) {
  for (uint32_t i = 0; i < node.count && ok(); i += 2) {
    if (i + 1 == node.count) return execute(child(node, i));
    const bool yes = truth(evaluate(child(node, i)));
    if (yes && ok()) return execute(child(node, i + 1));
  }
  return Flow::kNext;
}

// Assigns to a name of the innermost scope, or creates it there.
void Evaluator::define(Text name, Value value) {
  if (!ok()) return;
  const size_t first = scopes_.back().first;
  charge(kLook * (variables_.size() - first));
  for (size_t i = first; i < variables_.size() && ok(); ++i) {
    if (!same(variables_[i].name, heap_.view(name))) continue;
    variables_[i].value = value;
    return;
  }
  keep(variables_.push({name, value}));
}

void Evaluator::assign(uint32_t index, Value value) {
  const Node& target = node_at(index);
  if (!ok()) return;
  if (target.op == Op::kName) return define(target.text, value);
  if (target.op == Op::kList) {
    if (!value.is(Kind::kList) || value.b != target.count) {
      fail_kind("taking a value apart", value);
      return;
    }
    for (uint32_t i = 0; i < target.count && ok(); ++i) {
      assign(child(target, i), heap_.items[value.a + i]);
    }
    return;
  }
  const Value owner = lookup(node_at(target.a).text);
  if (!owner.is(Kind::kNamespace)) {
    fail_kind("setting an attribute", owner);
    return;
  }
  Member* found = find_member(owner.a, target.text);
  if (found != nullptr) {
    found->value = value;
  } else if (ok()) {
    keep(members_.push({owner.a, target.text, value}));
  }
}

void Evaluator::push_scope(uint32_t parent) {
  keep(scopes_.push({variables_.size(), parent, ++n_scopes_}));
}

void Evaluator::pop_scope() {
  if (scopes_.empty()) return;
  while (variables_.size() > scopes_.back().first) variables_.pop();
  scopes_.pop();
}

// The output since `begin` as a value.
Value Evaluator::cut_output(size_t begin) {
  const size_t at = heap_.text.size();
  const size_t n = out_.size() - begin;
  if (!charge(n)) return {};
  if (n > limits_.max_text - at) {
    return fail(MOE_ERR_TOO_LONG, "more than %zu bytes of text", limits_.max_text);
  }
  keep(heap_.text.append(out_, begin, n));
  out_.cut(begin);
  return since(at);
}

Value Evaluator::captured(uint32_t body) {
  const size_t begin = out_.size();
  execute(body);
  return cut_output(begin);
}

// All values are evaluated outside of the new scope.
Evaluator::Flow Evaluator::execute_with(const Node& node) {
  Array<Value> values(allocator_);
  for (uint32_t i = 1; i < node.count && ok(); i += 2) {
    keep(values.push(evaluate(child(node, i))));
  }
  const size_t n_before = scopes_.size();
  push_scope(scope());
  for (uint32_t i = 0; i < node.count && ok(); i += 2) assign(child(node, i), values[i / 2]);
  const Flow flow = ok() ? execute(node.a) : Flow::kNext;
  while (scopes_.size() > n_before) pop_scope();
  return flow;
}

// The elements of a list, keys of a mapping, characters of a text; none of an undefined value.
Value Evaluator::iterable(Value value, const char* what) {
  if (!ok() || value.is(Kind::kList)) return value;
  if (value.is(Kind::kUndefined)) return new_list(Array<Value>(allocator_));
  Array<Value> out(allocator_);
  if (value.is(Kind::kDict)) {
    for (const Entry& e : heap_.dict(value)) keep(out.push(e.key));
    return new_list(out);
  }
  if (!value.is(Kind::kString)) return fail_kind(what, value);
  charge(kLook * value.b);
  for (uint32_t i = 0; i < value.b && ok();) {
    const uint32_t n = utf8_next(heap_.view(value).data() + i).length;
    keep(out.push(text_value(child_text(value, i, n))));
    i += n;
  }
  return new_list(out);
}

// {% for x in items if condition %}: filters the elements before the loop begins.
Value Evaluator::filtered(const Node& node, Value items) {
  Array<Value> kept(allocator_);
  for (uint32_t i = 0; i < items.b && ok(); ++i) {
    const Value item = heap_.items[items.a + i];
    assign(node.a, item);
    if (ok() && truth(evaluate(child(node, 1)))) keep(kept.push(item));
  }
  return ok() ? new_list(kept) : Value{};
}

Evaluator::Flow Evaluator::execute_for(uint32_t index) {
  const Value items = iterable(evaluate(child(node_at(index), 0)), "a loop");
  return ok() ? run_loop(index, items, scope(), 1) : Flow::kNext;
}

// As in Jinja, {% else %} runs unless an iteration has reached its end: after {% continue %} or
// {% break %} in all of them too.
Evaluator::Flow Evaluator::run_loop(uint32_t index, Value items, uint32_t parent, uint32_t level) {
  const Node& node = node_at(index);
  const size_t n_before = scopes_.size();
  const size_t loop = loops_.size();
  push_scope(parent);
  if (ok() && child(node, 1) != kNoNode) items = filtered(node, items);
  keep(loops_.push({items, 0, index, parent, level}));
  Flow flow = Flow::kNext;
  bool completed = false;
  for (uint32_t i = 0; i < items.b && ok(); ++i) {
    pop_scope();
    push_scope(parent);
    if (!ok()) break;
    loops_[loop].index = i;
    define(loop_name_, {Kind::kLoop, static_cast<uint32_t>(loop), 0, 0});
    assign(node.a, heap_.items[items.a + i]);
    const Flow end = ok() ? execute(child(node, 2)) : Flow::kBreak;
    if (end == Flow::kBreak) break;
    completed = completed || end == Flow::kNext;
  }
  while (loops_.size() > loop) loops_.pop();
  const uint32_t otherwise = child(node, 3);
  if (ok() && !completed && otherwise != kNoNode) {
    pop_scope();
    push_scope(parent);
    if (ok()) flow = execute(otherwise);
  }
  while (scopes_.size() > n_before) pop_scope();
  return flow;
}

}  // namespace moe::jinja
