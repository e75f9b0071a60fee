// SPDX-License-Identifier: MIT
// Makes automata deterministic, and combines them.
#include "src/grammar/automaton.h"

#include "src/grammar/keys.h"
#include "src/text/characters/utf8.h"

namespace moe::grammar {
namespace {

constexpr size_t kMaxStates = 20000;
constexpr size_t kMaxCells = size_t{1} << 21;  // states times classes
constexpr size_t kMaxNodes = 50000;            // of an expression, its repetitions written out
constexpr uint64_t kMaxWork = 50 * 1000 * 1000;

void unique(Array<uint32_t>& values) {
  std::sort(values.begin(), values.end());
  uint32_t* const end = std::unique(values.begin(), values.end());
  while (values.end() != end) values.pop();
}

Status too_large() {
  return Status::error(MOE_ERR_UNSUPPORTED, "the patterns and lengths need more than %zu states",
                       kMaxStates);
}

}  // namespace

/// An expression as a nondeterministic automaton, whose sets of states become those of an
/// Automaton.
class Subsets {
 public:
  Subsets(const Expressions& e, const Allocator& a)
      : e_(e), nodes_(a), branches_(a), marks_(a), work_(a), sets_(a) {}

  Status run(uint32_t expr, Match match, Automaton& to) {
    uint32_t last = 0;
    MOE_TRY(add({.kind = kFinal}, &last));
    const uint32_t final = last;
    CharSet any(e_.allocator());
    MOE_TRY(any.invert());
    any_ = any.ranges();
    if (match == Match::kAnywhere) MOE_TRY(any_number(&last));
    MOE_TRY(build(expr, last, &last));
    if (match == Match::kAnywhere) MOE_TRY(any_number(&last));
    MOE_TRY(cut(to.cuts_));
    MOE_TRY(marks_.resize(nodes_.size()));
    return make(last, final, to);
  }

 private:
  enum Kind : uint8_t { kFinal, kChars, kBranch, kBegin, kFinish };
  struct N {
    Kind kind = kFinal;
    std::span<const CharRange> chars = {};
    uint32_t first = 0;  // the next node, or the first of n branches
    uint32_t n = 0;
  };

  Status add(const N& node, uint32_t* out) {
    if (nodes_.size() >= kMaxNodes) return too_large();
    *out = static_cast<uint32_t>(nodes_.size());
    return nodes_.push(node);
  }
  Status branch(std::span<const uint32_t> to, uint32_t* out) {
    const auto first = static_cast<uint32_t>(branches_.size());
    MOE_TRY(branches_.append(to.data(), to.size()));
    return add({.kind = kBranch, .first = first, .n = static_cast<uint32_t>(to.size())}, out);
  }
  // A loop whose body is made by f(loop, &body).
  template <class F>
  Status loop(uint32_t next, F&& f, uint32_t* node, uint32_t* body) {
    const uint32_t targets[] = {next, next};
    MOE_TRY(branch(targets, node));
    const uint32_t first = nodes_[*node].first;
    MOE_TRY(f(*node, body));
    branches_[first] = *body;
    return {};
  }
  Status any_number(uint32_t* next) {
    uint32_t body = 0;
    return loop(
        *next,
        [&](uint32_t l, uint32_t* b) {
          return add({.kind = kChars, .chars = any_, .first = l}, b);
        },
        next, &body);
  }

  Status build(uint32_t expr, uint32_t next, uint32_t* out) {
    if (++n_work_ > kMaxWork) return too_large();  // repetitions of nothing add no node
    const Expr& e = e_[expr];
    switch (e.kind) {
      case Expr::kSet:
        return add({.kind = kChars, .chars = e_.ranges(e), .first = next}, out);
      case Expr::kBegin:
        return add({.kind = kBegin, .first = next}, out);
      case Expr::kFinish:
        return add({.kind = kFinish, .first = next}, out);
      case Expr::kSequence:
        for (uint32_t i = e.n; i-- > 0;) MOE_TRY(build(e_.children(e)[i], next, &next));
        *out = next;
        return {};
      case Expr::kChoice: {
        Array<uint32_t> targets(e_.allocator());
        for (const uint32_t child : e_.children(e)) {
          uint32_t t = 0;
          MOE_TRY(build(child, next, &t));
          MOE_TRY(targets.push(t));
        }
        return branch(targets.span(), out);
      }
      case Expr::kRepeat:
        return repeat(e, next, out);
      case Expr::kRule:
        break;
    }
    return Status::error(MOE_ERR_UNSUPPORTED, "a rule in a pattern");
  }

  Status repeat(const Expr& e, uint32_t next, uint32_t* out) {
    if (e.max == kNoLimit) {
      uint32_t body = 0;
      const auto again = [&](uint32_t l, uint32_t* b) { return build(e.first, l, b); };
      MOE_TRY(loop(next, again, &next, &body));
    }
    const uint32_t optional = e.max == kNoLimit ? 0 : e.max - e.min;
    const uint32_t end = next;
    for (uint32_t i = 0; i < optional; ++i) {
      uint32_t taken = 0;
      MOE_TRY(build(e.first, next, &taken));
      const uint32_t targets[] = {taken, end};
      MOE_TRY(branch(targets, &next));
    }
    for (uint32_t i = 0; i < e.min; ++i) {
      MOE_TRY(build(e.first, next, &next));
    }
    *out = next;
    return {};
  }

  Status cut(Array<uint32_t>& cuts) {
    MOE_TRY(cuts.push(0));
    for (const N& n : nodes_) {
      for (const CharRange& r : n.chars) {
        if (cuts.size() > 4 * kMaxStates) return too_large();
        MOE_TRY(cuts.push(r.low));
        MOE_TRY(cuts.push(r.high + 1));
      }
      if (cuts.size() > 1024) unique(cuts);
    }
    unique(cuts);
    while (cuts.back() > kMaxChar) cuts.pop();
    return {};
  }

  // The character nodes and pending anchors that `set` leads to without reading.
  Status close(Array<uint32_t>& set, bool at_begin, bool at_finish, uint32_t final, bool* ends) {
    ++mark_;
    work_.clear();
    MOE_TRY(work_.append(set.data(), set.size()));
    set.clear();
    *ends = false;
    while (!work_.empty()) {
      const uint32_t i = work_.back();
      work_.pop();
      if (++n_work_ > kMaxWork) return too_large();
      if (marks_[i] == mark_) continue;
      marks_[i] = mark_;
      const N& n = nodes_[i];
      if (i == final) *ends = true;
      if (n.kind == kBranch) {
        for (uint32_t j = 0; j < n.n; ++j) MOE_TRY(work_.push(branches_[n.first + j]));
      } else if ((n.kind == kBegin && at_begin) || (n.kind == kFinish && at_finish)) {
        MOE_TRY(work_.push(n.first));
      } else if (n.kind != kBegin) {
        MOE_TRY(set.push(i));
      }
    }
    std::sort(set.begin(), set.end());
    return {};
  }

  Status make(uint32_t start, uint32_t final, Automaton& to) {
    Array<uint32_t> set(e_.allocator());
    MOE_TRY(set.push(start));
    uint32_t id = 0;
    MOE_TRY(state(set, true, final, to, &id));
    for (uint32_t s = 0; s < sets_.size(); ++s) {
      for (size_t c = 0; c < to.cuts_.size(); ++c) {
        set.clear();
        for (const uint32_t i : sets_[s]) {
          if (++n_work_ > kMaxWork) return too_large();
          const N& n = nodes_[i & ~kAtBegin];
          if (n.kind == kChars && has(n.chars, to.cuts_[c])) MOE_TRY(set.push(n.first));
        }
        if (set.empty()) continue;
        MOE_TRY(state(set, false, final, to, &id));
        to.set_next(s, c, id);
      }
    }
    return {};
  }

  static bool has(std::span<const CharRange> chars, uint32_t c) {
    const CharRange* const r = std::partition_point(chars.data(), chars.data() + chars.size(),
                                                    [&](const CharRange& x) { return x.high < c; });
    return r != chars.data() + chars.size() && r->low <= c;
  }

  Status state(Array<uint32_t>& set, bool at_begin, uint32_t final, Automaton& to, uint32_t* id) {
    bool ends = false;
    MOE_TRY(close(set, at_begin, false, final, &ends));
    Array<uint32_t> key(e_.allocator());
    MOE_TRY(key.append(set.data(), set.size()));
    if (!ends) MOE_TRY(close(set, at_begin, true, final, &ends));
    if (at_begin)
      MOE_TRY(key.push(kAtBegin));  // the first state may end where a later one does not
    bool fresh = false;
    MOE_TRY(sets_.find(key.span(), id, &fresh));
    if (!fresh) return {};
    uint32_t added = 0;
    return to.add_state(ends, &added);
  }

  static constexpr uint32_t kAtBegin = uint32_t{1} << 31;
  const Expressions& e_;
  Array<N> nodes_;
  Array<uint32_t> branches_;
  Array<uint32_t> marks_;
  uint32_t mark_ = 0;
  Array<uint32_t> work_;
  Keys sets_;
  std::span<const CharRange> any_;
  uint64_t n_work_ = 0;
};

Status Automaton::add_state(bool accepts, uint32_t* out) {
  if (n_states() >= kMaxStates || next_.size() > kMaxCells) return too_large();
  *out = static_cast<uint32_t>(accepts_.size());
  MOE_TRY(accepts_.push(accepts));
  for (size_t i = 0; i < cuts_.size(); ++i) MOE_TRY(next_.push(kNone));
  return {};
}

Status Automaton::from_expression(const Expressions& e, uint32_t expr, Match match) {
  MOE_TRY(Subsets(e, e.allocator()).run(expr, match, *this));
  return trim();
}

Status Automaton::from_lengths(uint32_t min, uint32_t max) {
  MOE_TRY(cuts_.push(0));
  const uint32_t last = max == kNoLimit ? min : max;
  for (uint32_t i = 0; i <= last; ++i) {
    uint32_t state = 0;
    MOE_TRY(add_state(i >= min, &state));
    if (i > 0) set_next(state - 1, 0, state);
  }
  if (max == kNoLimit) set_next(last, 0, last);
  return {};
}

Status Automaton::from_all_but(std::span<const std::string_view> texts) {
  MOE_TRY(cuts_.push(0));
  const auto each_char = [](std::string_view text, auto&& f) -> Status {
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = utf8_next(text.data() + i);
      MOE_TRY(f(c.code));
      i += c.length;
    }
    return {};
  };
  const auto cut_at = [&](uint32_t c) -> Status {
    MOE_TRY(cuts_.push(c));
    return cuts_.push(c + 1);
  };
  for (const std::string_view text : texts) {
    MOE_TRY(each_char(text, cut_at));
    if (cuts_.size() > 1024) unique(cuts_);
  }
  unique(cuts_);
  uint32_t rest = 0;
  uint32_t start = 0;
  MOE_TRY(add_state(true, &start));
  MOE_TRY(add_state(true, &rest));
  uint32_t s = start;
  const auto go = [&](uint32_t c) -> Status {
    const size_t cls = class_of(c);
    uint32_t to = next(s, cls);
    if (to == kNone) {
      MOE_TRY(add_state(true, &to));
      set_next(s, cls, to);
    }
    s = to;
    return {};
  };
  for (const std::string_view text : texts) {
    s = start;
    MOE_TRY(each_char(text, go));
    accepts_[s] = 0;
  }
  std::replace(next_.begin(), next_.end(), kNone, rest);
  return {};
}

Status Automaton::combine(const Automaton& a, const Automaton& b, Op op) {
  MOE_TRY(cuts_.append(a.cuts_.data(), a.cuts_.size()));
  MOE_TRY(cuts_.append(b.cuts_.data(), b.cuts_.size()));
  unique(cuts_);
  Keys pairs(cuts_.allocator());
  const auto state = [&](uint32_t x, uint32_t y, uint32_t* id) -> Status {
    const uint32_t key[] = {x, y};
    bool fresh = false;
    MOE_TRY(pairs.find(key, id, &fresh));
    if (!fresh) return {};
    const bool p = a.accepts(x);
    const bool q = b.accepts(y);
    uint32_t added = 0;
    return add_state(op == Op::kAnd ? p && q : op == Op::kOr ? p || q : p && !q, &added);
  };
  Array<uint32_t> classes(cuts_.allocator());  // of `a` and of `b`, for each class here
  for (const uint32_t cut : cuts_) {
    for (const Automaton* of : {&a, &b}) {
      MOE_TRY(classes.push(static_cast<uint32_t>(of->class_of(cut))));
    }
  }
  uint32_t id = 0;
  MOE_TRY(state(a.n_states() == 0 ? kNone : 0, b.n_states() == 0 ? kNone : 0, &id));
  for (uint32_t s = 0; s < pairs.size(); ++s) {
    const uint32_t x = pairs[s][0];
    const uint32_t y = pairs[s][1];
    uint32_t last_x = kNone;  // most neighbours among the classes lead to the same state
    uint32_t last_y = kNone;
    for (size_t c = 0; c < cuts_.size(); ++c) {
      if (cuts_[c] == 0xD800 && class_of(0xE000) == c + 1) continue;  // surrogates are in no text
      const uint32_t nx = a.next(x, classes[2 * c]);
      const uint32_t ny = b.next(y, classes[2 * c + 1]);
      const bool dead = op == Op::kOr    ? nx == kNone && ny == kNone
                        : op == Op::kAnd ? nx == kNone || ny == kNone
                                         : nx == kNone;
      if (dead) continue;
      if (nx != last_x || ny != last_y) MOE_TRY(state(nx, ny, &id));
      last_x = nx;
      last_y = ny;
      set_next(s, c, id);
    }
  }
  return trim();
}

size_t Automaton::class_of(uint32_t c) const {
  return static_cast<size_t>(std::upper_bound(cuts_.begin(), cuts_.end(), c) - cuts_.begin()) - 1;
}

// Removes the ways into states from which no text is accepted.
Status Automaton::trim() {
  const size_t n = n_states();
  const size_t k = cuts_.size();
  Array<uint32_t> first(cuts_.allocator());  // of the states that lead to each state
  Array<uint32_t> from(cuts_.allocator());
  MOE_TRY(first.resize(n + 1));
  for (const uint32_t to : next_) {
    if (to != kNone) ++first[to];
  }
  for (size_t i = 1; i <= n; ++i) first[i] += first[i - 1];
  MOE_TRY(from.resize(first[n]));
  for (size_t i = 0; i < n * k; ++i) {
    if (next_[i] != kNone) from[--first[next_[i]]] = static_cast<uint32_t>(i / k);
  }
  Array<uint8_t> useful(cuts_.allocator());
  Array<uint32_t> work(cuts_.allocator());
  MOE_TRY(useful.resize(n));
  for (uint32_t s = 0; s < n; ++s) {
    useful[s] = accepts_[s];
    if (accepts_[s]) MOE_TRY(work.push(s));
  }
  while (!work.empty()) {
    const uint32_t s = work.back();
    work.pop();
    for (uint32_t i = first[s]; i < first[s + 1]; ++i) {
      if (useful[from[i]]) continue;
      useful[from[i]] = 1;
      MOE_TRY(work.push(from[i]));
    }
  }
  for (uint32_t& to : next_) {
    if (to != kNone && !useful[to]) to = kNone;
  }
  return {};
}

bool Automaton::empty() const {
  if (n_states() == 0) return true;
  if (accepts_[0]) return false;
  for (size_t c = 0; c < cuts_.size(); ++c) {
    if (next_[c] != kNone) return false;
  }
  return true;
}

bool Automaton::contains(std::string_view text) const {
  uint32_t s = n_states() == 0 ? kNone : 0;
  for (size_t i = 0; i < text.size() && s != kNone;) {
    const Utf8Char c = utf8_next(text.data() + i);
    s = next(s, class_of(c.code));
    i += c.length;
  }
  return accepts(s);
}

namespace {

// Pushes nodes that read a character of the set. All characters but printable ones of ASCII, which
// take many nodes, are mostly either all in a set or none: *others, 0 at first, reads them for all
// sets with the same next node.
void read_set(Network& network, std::span<const CharRange> set, Spelling spelling, uint32_t next,
              uint32_t& others, Array<uint32_t>& to) {
  // Sets have a gap where surrogates are.
  const bool all = set.size() >= 2 && set[0].low == 0 && set[0].high >= 0x1F &&
                   set[set.size() - 2].low <= 0x7F && set[set.size() - 2].high == 0xD7FF &&
                   set.back().low == 0xE000 && set.back().high == kMaxChar;
  if (!all) {
    network.fail(to.push(read_char(network, set, spelling, next)));
    return;
  }
  static constexpr CharRange kOthers[] = {{0, 0x1F}, {0x7F, 0xD7FF}, {0xE000, kMaxChar}};
  if (others == 0) others = read_char(network, kOthers, spelling, next);
  network.fail(to.push(others));
  Array<CharRange> printable(network.allocator());
  for (const CharRange& r : set) {
    const CharRange part = {std::max(r.low, 0x20U), std::min(r.high, 0x7EU)};
    if (part.low <= part.high) network.fail(printable.push(part));
  }
  if (!printable.empty())
    network.fail(to.push(read_char(network, printable.span(), spelling, next)));
}

}  // namespace

uint32_t Automaton::build(Network& network, Spelling spelling, uint32_t next_node) const {
  const Allocator& allocator = cuts_.allocator();
  if (empty()) return kNever;
  Array<uint32_t> nodes(allocator);
  for (size_t s = 0; s < n_states(); ++s) network.fail(nodes.push(network.open_split()));
  Array<uint32_t> others(allocator);  // per state: reads what read_set() shares
  network.fail(others.resize(n_states()));
  Array<uint32_t> targets(allocator);
  struct Way {
    uint32_t to;
    uint32_t cls;
  };
  Array<Way> ways(allocator);
  for (uint32_t s = 0; s < n_states() && network.status().ok(); ++s) {
    targets.clear();
    ways.clear();
    if (accepts_[s]) network.fail(targets.push(next_node));
    for (uint32_t c = 0; c < cuts_.size(); ++c) {
      if (next(s, c) != kNone) network.fail(ways.push({next(s, c), c}));
    }
    std::sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) {
      return a.to != b.to ? a.to < b.to : a.cls < b.cls;
    });
    for (size_t i = 0; i < ways.size();) {
      CharSet set(allocator);
      const uint32_t to = ways[i].to;
      for (; i < ways.size() && ways[i].to == to; ++i) {
        const uint32_t c = ways[i].cls;
        network.fail(set.add(cuts_[c], c + 1 < cuts_.size() ? cuts_[c + 1] - 1 : kMaxChar));
      }
      network.fail(set.close());
      read_set(network, set.ranges(), spelling, nodes[to], others[to], targets);
    }
    network.close_split(nodes[s], targets.span());
  }
  return nodes.empty() ? kNever : nodes[0];
}

namespace {

/// One branch of an expression without the anchors at its ends.
struct Branch {
  uint32_t expr;  // kSequence or another kind
  uint32_t begin = 0;
  uint32_t end = 0;  // children of a sequence
  bool at_begin = false;
  bool at_finish = false;
};

// Flattens choices at the top. False if an anchor is left in between.
Status flatten(const Expressions& e, uint32_t expr, Array<Branch>& to, bool* simple) {
  const Expr& x = e[expr];
  if (x.kind == Expr::kChoice) {
    for (const uint32_t child : e.children(x)) MOE_TRY(flatten(e, child, to, simple));
    return {};
  }
  Branch b = {.expr = expr};
  if (x.kind == Expr::kSequence) {
    const std::span<const uint32_t> list = e.children(x);
    b.end = x.n;
    while (b.begin < b.end && e[list[b.begin]].kind == Expr::kBegin) {
      b.at_begin = true;
      ++b.begin;
    }
    while (b.end > b.begin && e[list[b.end - 1]].kind == Expr::kFinish) {
      b.at_finish = true;
      --b.end;
    }
    if (b.end == b.begin + 1 && !b.at_begin && !b.at_finish) {
      return flatten(e, list[b.begin], to, simple);
    }
    for (uint32_t i = b.begin; i < b.end; ++i) *simple = *simple && !e.has_anchor(list[i]);
  } else {
    *simple = *simple && !e.has_anchor(expr);
  }
  return to.push(b);
}

uint32_t any_text(const Allocator& a, Network& network, Spelling spelling, uint32_t next) {
  CharSet any(a);
  network.fail(any.invert());
  const uint32_t loop = network.open_split();
  const uint32_t targets[] = {read_char(network, any.ranges(), spelling, loop), next};
  network.close_split(loop, targets);
  return loop;
}

}  // namespace

Status build_match(const Expressions& e, uint32_t expr, Match match, Spelling spelling,
                   Network& network, uint32_t next, uint32_t* out) {
  Array<Branch> branches(e.allocator());
  bool simple = true;
  MOE_TRY(flatten(e, expr, branches, &simple));
  if (!simple) {
    Automaton automaton(e.allocator());
    MOE_TRY(automaton.from_expression(e, expr, match));
    *out = automaton.build(network, spelling, next);
    return network.status();
  }
  const bool anywhere = match == Match::kAnywhere;
  const uint32_t loose_end = anywhere ? any_text(e.allocator(), network, spelling, next) : next;
  Array<uint32_t> pinned(e.allocator());
  Array<uint32_t> loose(e.allocator());  // may begin anywhere
  for (const Branch& b : branches) {
    uint32_t node = b.at_finish ? next : loose_end;
    if (e[b.expr].kind == Expr::kSequence) {
      const std::span<const uint32_t> list = e.children(e[b.expr]);
      for (uint32_t i = b.end; i-- > b.begin;) node = e.build(network, list[i], spelling, node);
    } else {
      node = e.build(network, b.expr, spelling, node);
    }
    MOE_TRY((b.at_begin || !anywhere ? pinned : loose).push(node));
  }
  if (!loose.empty()) {
    MOE_TRY(pinned.push(any_text(e.allocator(), network, spelling, network.split(loose.span()))));
  }
  *out = network.split(pinned.span());
  return network.status();
}

}  // namespace moe::grammar
