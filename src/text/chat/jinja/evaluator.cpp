// SPDX-License-Identifier: MIT
// Makes values, reports errors, and charges every step, byte and item to the limits.
#include "src/text/chat/jinja/evaluator.h"

#include <cstdarg>

#include "src/base/string.h"
#include "src/text/characters/utf8.h"

namespace moe::jinja {

const char* kind_name(Kind kind) {
  static constexpr const char* kNames[] = {"undefined",   "none",     "a boolean",  "an integer",
                                           "a fraction",  "a string", "a list",     "a mapping",
                                           "a namespace", "a macro",  "a function", "a loop"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_python_space(uint32_t code) {
  return (code >= 9 && code <= 13) || (code >= 28 && code <= 32) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

Evaluator::Evaluator(const Program& program, const Limits& limits, const Allocator& allocator)
    : program_(program),
      limits_(limits),
      allocator_(allocator),
      heap_(allocator),
      out_(allocator),
      variables_(allocator),
      members_(allocator),
      loops_(allocator),
      scopes_(allocator) {}

Status Evaluator::prepare(std::string_view date) {
  // The program's text comes first, so that its Texts stay valid here.
  MOE_TRY(heap_.text.append({program_.text.data(), program_.text.size()}, 0));
  push_scope(0);
  loop_name_ = text_of(literal("loop"));
  date_ = text_of(literal(date));
  struct Named {
    const char* name;
    Function function;
  };
  for (const Named& f :
       {Named{"raise_exception", kRaise}, Named{"namespace", kNamespaceOf}, Named{"range", kRange},
        Named{"dict", kDictOf}, Named{"strftime_now", kDate}}) {
    if (f.function == kDate && date.empty()) continue;
    MOE_TRY(set_global(f.name, {Kind::kFunction, f.function, 0, 0}));
  }
  return status_;
}

Status Evaluator::make_text(std::string_view text, bool from_user, Value* out) {
  const size_t begin = heap_.text.size();
  Array<char> repaired(allocator_);
  MOE_TRY(utf8_repair(text, repaired, &text));
  put(text, from_user ? 1 : 0);
  *out = since(begin);
  return status_;
}

Status Evaluator::make_list(const Array<Value>& items, Value* out) {
  *out = new_list(items);
  return status_;
}

Status Evaluator::make_dict(const Array<Entry>& entries, Value* out) {
  *out = {Kind::kDict, static_cast<uint32_t>(heap_.entries.size()),
          static_cast<uint32_t>(entries.size()), 0};
  if (heap_.entries.size() + entries.size() > limits_.max_items) {
    fail(MOE_ERR_TOO_LONG, "more than %zu items", limits_.max_items);
    return status_;
  }
  return heap_.entries.append(entries.data(), entries.size());
}

Status Evaluator::set_global(std::string_view name, Value value) {
  const Text text = text_of(literal(name));
  MOE_TRY(status_);
  define(text, value);
  return status_;
}

Status Evaluator::run(MarkedText& out) {
  execute(program_.root);
  if (!ok()) return status_.with_context("chat template, line %u", line_);
  return out.append(out_, 0, out_.size());
}

Value Evaluator::fail(moe_status code, const char* format, ...) {
  if (!ok()) return {};
  va_list args;
  va_start(args, format);
  status_ = Status::verror(code, format, args);
  va_end(args);
  return {};
}

Value Evaluator::fail_kind(const char* what, Value found) {
  if (found.is(Kind::kUndefined)) {
    const std::string_view name = slice(heap_.view(Text{found.a, found.b}), 0, 60);
    return fail(MOE_ERR_TEXT, "%s: '%.*s' is undefined", what, static_cast<int>(name.size()),
                name.data());
  }
  return fail(MOE_ERR_TEXT, "%s: not possible with %s", what, kind_name(found.kind));
}

Value Evaluator::fail_unknown(const char* what, std::string_view name) {
  name = slice(name, 0, 60);
  return fail(MOE_ERR_UNSUPPORTED, "the %s '%.*s' is not known", what,
              static_cast<int>(name.size()), name.data());
}

Value Evaluator::fail_unsupported(const Node& node) {
  line_ = node.line;
  const std::string_view what = program_.view(node.text);
  return fail(MOE_ERR_UNSUPPORTED, "%.*s is not supported", static_cast<int>(what.size()),
              what.data());
}

bool Evaluator::charge(size_t bytes) {
  constexpr uint64_t kLookEvery = 16384;
  steps_ += 1 + bytes / 64;
  if (steps_ >= next_look_) {
    next_look_ = steps_ + kLookEvery;
    if (limits_.cancelled != nullptr && limits_.cancelled(limits_.user)) {
      fail(MOE_ERR_CANCELLED, "cancelled");
    }
  }
  if (steps_ > limits_.max_steps) {
    fail(MOE_ERR_TOO_LONG, "more than %llu steps",
         static_cast<unsigned long long>(limits_.max_steps));
  }
  return ok();
}

// Every comparison of names and keys: what it reads is charged.
bool Evaluator::same(Text a, std::string_view b) {
  return a.size == b.size() && charge(a.size) && heap_.view(a) == b;
}

void Evaluator::put(std::string_view text, uint8_t mark) {
  if (!charge(text.size())) return;
  if (text.size() > limits_.max_text - heap_.text.size()) {
    fail(MOE_ERR_TOO_LONG, "more than %zu bytes of text", limits_.max_text);
    return;
  }
  keep(heap_.text.append(text, mark));
}

void Evaluator::put(Value text) {
  if (!charge(text.b)) return;
  if (text.b > limits_.max_text - heap_.text.size()) {
    fail(MOE_ERR_TOO_LONG, "more than %zu bytes of text", limits_.max_text);
    return;
  }
  keep(heap_.text.append(heap_.text, text.a, text.b));
}

Value Evaluator::literal(std::string_view text) {
  const size_t begin = heap_.text.size();
  put(text, 0);
  return since(begin);
}

Value Evaluator::new_list(const Array<Value>& items) {
  if (!charge(items.size() * sizeof(Value))) return {};
  if (heap_.items.size() + items.size() > limits_.max_items) {
    return fail(MOE_ERR_TOO_LONG, "more than %zu items", limits_.max_items);
  }
  const Value list = {Kind::kList, static_cast<uint32_t>(heap_.items.size()),
                      static_cast<uint32_t>(items.size()), 0};
  keep(heap_.items.append(items.data(), items.size()));
  return list;
}

Value Evaluator::argument(const Arguments& arguments, size_t position, std::string_view name) {
  charge(kLook * arguments.values.size());
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const Text given = arguments.names[i];
    if (given.size == 0 ? i == position : same(given, name)) return arguments.values[i];
  }
  return {};
}

}  // namespace moe::jinja
