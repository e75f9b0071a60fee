// SPDX-License-Identifier: MIT
// Expressions as parts of a network.
#include "src/grammar/expression.h"

namespace moe::grammar {
namespace {

constexpr size_t kMaxExpressions = 1 << 22;  // a network has room for fewer

}  // namespace

Status Expressions::add(const Expr& expr, uint32_t* out) {
  if (exprs_.size() == kMaxExpressions) {
    return Status::error(MOE_ERR_TOO_LONG, "grammar: more than %zu characters and operators",
                         kMaxExpressions);
  }
  *out = static_cast<uint32_t>(exprs_.size());
  return exprs_.push(expr);
}

Status Expressions::add_set(const CharSet& set, uint32_t* out) {
  const auto first = static_cast<uint32_t>(ranges_.size());
  const auto n = static_cast<uint32_t>(set.ranges().size());
  MOE_TRY(ranges_.append(set.ranges().data(), n));
  return add({.kind = Expr::kSet, .first = first, .n = n}, out);
}

Status Expressions::add_char(uint32_t c, uint32_t* out) {
  CharSet set(allocator());
  MOE_TRY(set.add(c, c));
  MOE_TRY(set.close());
  return add_set(set, out);
}

Status Expressions::add_list(Expr::Kind kind, std::span<const uint32_t> children, uint32_t* out) {
  if (children.size() == 1) {
    *out = children[0];
    return {};
  }
  const auto first = static_cast<uint32_t>(children_.size());
  MOE_TRY(children_.append(children.data(), children.size()));
  return add({.kind = kind, .first = first, .n = static_cast<uint32_t>(children.size())}, out);
}

// The parsers limit how deep expressions lie in each other.
uint32_t Expressions::build(Network& network, uint32_t expr, Spelling spelling,
                            uint32_t next) const {
  if (!network.status().ok()) return kNever;  // too large
  const Expr e = exprs_[expr];
  switch (e.kind) {
    case Expr::kSet:
      return read_char(network, ranges(e), spelling, next);
    case Expr::kSequence:
      for (uint32_t i = e.n; i-- > 0;) next = build(network, children(e)[i], spelling, next);
      return next;
    case Expr::kChoice: {
      Array<uint32_t> targets(allocator());
      for (const uint32_t child : children(e)) {
        network.fail(targets.push(build(network, child, spelling, next)));
      }
      return network.split(targets.span());
    }
    case Expr::kRule:
      return network.call(e.first, next);
    case Expr::kRepeat:
      break;
    case Expr::kBegin:
    case Expr::kFinish:
      return kNever;
  }
  if (e.max == 1) {
    const uint32_t once = build(network, e.first, spelling, next);
    return e.min == 1 ? once : network.optional(once, next);
  }
  if (e.max == kNoLimit && e.min <= 1) {
    const uint32_t loop = network.open_split();
    const uint32_t targets[] = {build(network, e.first, spelling, loop), next};
    network.close_split(loop, targets);
    return e.min == 1 ? targets[0] : loop;
  }
  if (e.max == 0) return next;
  const uint32_t rule = network.add_rule();
  network.define(rule, build(network, e.first, spelling, kEnd));
  return network.repeat(rule, e.min, e.max, next);
}

bool Expressions::has_anchor(uint32_t expr) const {
  const Expr& e = exprs_[expr];
  if (e.kind == Expr::kBegin || e.kind == Expr::kFinish) return true;
  if (e.kind == Expr::kRepeat) return has_anchor(e.first);
  if (e.kind != Expr::kSequence && e.kind != Expr::kChoice) return false;
  const std::span<const uint32_t> list = children(e);
  return std::any_of(list.begin(), list.end(), [&](uint32_t c) { return has_anchor(c); });
}

}  // namespace moe::grammar
