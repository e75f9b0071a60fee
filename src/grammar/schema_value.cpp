// SPDX-License-Identifier: MIT
// Fixed values (const, enum), and what all values share: white space, strings, numbers.
#include "src/grammar/schema_compiler.h"

namespace moe::grammar {
namespace {

constexpr uint32_t kMaxIndent = 20;
// A reader of calls takes numbers that a double holds.
constexpr std::string_view kFiniteNumber =
    "-?(0|[1-9][0-9]{0,199})(\\.[0-9]+)?([eE](-[0-9]+|\\+?[0-9]{1,2}))?";

}  // namespace

// Between tokens: nothing, a space, or the beginning of a new line.
uint32_t SchemaCompiler::space(uint32_t next) {
  if (notation_ != nullptr) return next;
  const Edge edges[] = {{'\n', '\n', network_.repeat(shared(kIndent), 0, kMaxIndent, next)},
                        {' ', ' ', next}};
  return network_.optional(network_.bytes(edges), next);
}

// A rule that all that need it share.
uint32_t SchemaCompiler::shared(Shared what) {
  uint32_t& rule = shared_[what];
  if (rule != ~0U) return rule;
  rule = network_.add_rule();
  uint32_t start = kNever;
  const auto regex = [&](std::string_view text) {
    Expressions e(allocator());
    uint32_t expr = 0;
    network_.fail(parse_regex(text, e, &expr));
    if (network_.status().ok()) start = e.build(network_, expr, Spelling::kPlain, kEnd);
  };
  CharSet any(allocator());
  network_.fail(any.invert());
  switch (what) {
    case kAnyString: {
      if (notation_ != nullptr) {
        start = any_marked_text();
        break;
      }
      const uint32_t loop = network_.open_split();
      const uint32_t targets[] = {read_char(network_, any.ranges(), Spelling::kJson, loop),
                                  network_.byte('"', '"', kEnd)};
      network_.close_split(loop, targets);
      start = network_.byte('"', '"', loop);
      break;
    }
    case kAnyChar:
      start = read_char(network_, any.ranges(), Spelling::kJson, kEnd);
      break;
    case kIndent:
      regex("[ \\t]");
      break;
    case kAnyNumber:
      regex(in_call_ ? kFiniteNumber : "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?");
      break;
    case kAnyInteger:
    case kShared:
      regex(in_call_ ? "0|-?[1-9][0-9]{0,199}" : "0|-?[1-9][0-9]*");
      break;
  }
  network_.define(rule, start);
  return rule;
}

// A choice of the values of enum and const.
Status SchemaCompiler::values(const Parts& parts, uint32_t types, uint32_t* out) {
  Array<uint32_t> targets(allocator());
  MOE_TRY(each_value(parts, types, [&](uint32_t c) { return targets.push(write(c, kEnd)); }));
  *out = network_.split(targets.span());
  return {};
}

// A node that writes the value.
uint32_t SchemaCompiler::write(uint32_t value, uint32_t next) {
  switch (json_.kind(value)) {
    case Json::kNull:
      return network_.literal("null", next);
    case Json::kFalse:
      return network_.literal("false", next);
    case Json::kTrue:
      return network_.literal("true", next);
    case Json::kNumber: {
      const std::string_view text = json_.text(value);
      const size_t point = std::min(text.find('.'), text.size());
      const bool whole = slice(text, point).find_first_not_of(".0") == std::string_view::npos;
      const uint32_t same = network_.literal(text, next);
      if (point == text.size() || !whole) return same;
      return network_.optional(network_.literal(slice(text, 0, point), next), same);  // 2 is 2.0
    }
    case Json::kString:
      return quoted(json_.text(value), next);
    case Json::kArray:
    case Json::kObject:
      break;
  }
  const bool object = json_.kind(value) == Json::kObject;
  Array<uint32_t> children(allocator());
  for (uint32_t c = json_.first(value); c != Json::kNone; c = json_.next(c)) {
    network_.fail(children.push(c));
  }
  next = space(network_.literal(object ? "}" : "]", next));
  for (size_t i = children.size(); i-- > 0;) {
    next = write(children[i], next);
    if (object) next = member_name(json_.name(children[i]), space(next));
    next = i > 0 ? network_.byte(',', ',', space(next)) : space(next);
  }
  return network_.literal(object ? "{" : "[", next);
}

}  // namespace moe::grammar
