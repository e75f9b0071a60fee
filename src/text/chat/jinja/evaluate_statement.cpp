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
      flow = execute_for(node);
      break;
    case Op::kSet:
      assign(node.a, evaluate(node.b));
      break;
    case Op::kSetBlock:
      assign(node.a, captured(node.b));
      break;
    case Op::kMacro:
      define(node.text, {Kind::kMacro, index, 0, 0});
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
  charge(kLook * (variables_.size() - scope_begin_));
  for (size_t i = scope_begin_; i < variables_.size() && ok(); ++i) {
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
    for (uint32_t i = 0; i < target.count; ++i) {
      define(node_at(child(target, i)).text, heap_.items[value.a + i]);
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

// The output of a body as a value.
Value Evaluator::captured(uint32_t body) {
  const size_t begin = out_.size();
  execute(body);
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

Value Evaluator::loop_items(const Node& node) {
  const Value value = evaluate(child(node, 0));
  if (!ok() || value.is(Kind::kList)) return value;
  if (value.is(Kind::kUndefined)) return new_list(Array<Value>(allocator_));
  if (value.is(Kind::kDict)) {
    Array<Value> keys(allocator_);
    for (const Entry& e : heap_.dict(value)) keep(keys.push(e.key));
    return new_list(keys);
  }
  return fail_kind("a loop", value);
}

void Evaluator::bind_targets(const Node& node, Value item) {
  const uint32_t n = node.count - 4;
  if (n == 1) return define(node_at(child(node, 4)).text, item);
  if (!item.is(Kind::kList) || item.b != n) {
    fail_kind("taking a loop's element apart", item);
    return;
  }
  for (uint32_t i = 0; i < n; ++i) {
    define(node_at(child(node, 4 + i)).text, heap_.items[item.a + i]);
  }
}

// {% for x in items if condition %}: filters the elements before the loop begins.
Value Evaluator::filtered(const Node& node, Value items) {
  const size_t outer = scope_begin_;
  scope_begin_ = variables_.size();
  const size_t first = scope_begin_;
  Array<Value> kept(allocator_);
  for (uint32_t i = 0; i < items.b && ok(); ++i) {
    const Value item = heap_.items[items.a + i];
    bind_targets(node, item);
    if (ok() && truth(evaluate(child(node, 1)))) keep(kept.push(item));
  }
  while (variables_.size() > first) variables_.pop();
  scope_begin_ = outer;
  return ok() ? new_list(kept) : Value{};
}

Evaluator::Flow Evaluator::execute_for(const Node& node) {
  Value items = loop_items(node);
  const size_t outer = scope_begin_;
  const size_t globals = n_globals_;
  if (outer == 0) n_globals_ = variables_.size();
  if (ok() && child(node, 1) != kNoNode) items = filtered(node, items);
  const uint32_t otherwise = child(node, 3);
  Flow flow = Flow::kNext;
  const size_t first = variables_.size();
  const auto loop = static_cast<uint32_t>(loops_.size());
  keep(loops_.push({items, 0}));
  scope_begin_ = first;
  for (uint32_t i = 0; i < items.b && ok(); ++i) {
    loops_[loop].index = i;
    define(loop_name_, {Kind::kLoop, loop, 0, 0});
    bind_targets(node, heap_.items[items.a + i]);
    if (ok() && execute(child(node, 2)) == Flow::kBreak) break;
    while (variables_.size() > first) variables_.pop();
  }
  while (variables_.size() > first) variables_.pop();
  while (loops_.size() > loop) loops_.pop();
  if (ok() && items.b == 0 && otherwise != kNoNode) flow = execute(otherwise);
  scope_begin_ = outer;
  n_globals_ = globals;
  return flow;
}

}  // namespace moe::jinja
