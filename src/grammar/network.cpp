// SPDX-License-Identifier: MIT
// Builds a network, and removes the parts of it that lead nowhere.
#include "src/grammar/network.h"

namespace moe::grammar {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{48} << 20;
constexpr uint32_t kMostParts = (1U << 29) - 1;  // of a node: more than kMaxBytes has room for

// For each node, the nodes whose property may follow from its own.
struct Users {
  explicit Users(const Allocator& a) : first(a), list(a) {}
  Array<uint32_t> first;
  Array<uint32_t> list;
};

}  // namespace

Network::Network(const Allocator& allocator)
    : nodes_(allocator),
      edges_(allocator),
      counts_(allocator),
      targets_(allocator),
      starts_(allocator),
      nullable_(allocator) {
  (void)add(Node::kStop, {});
  (void)add(Node::kSplit, {});
}

uint64_t Network::n_bytes() const {
  return nodes_.size() * sizeof(Node) + edges_.size() * sizeof(Edge) +
         counts_.size() * sizeof(Counts) + (targets_.size() + starts_.size()) * sizeof(uint32_t);
}

uint32_t Network::add(Node::Kind kind, const Edge& edge, uint32_t first, size_t n) {
  if (status_.ok() && n_bytes() > kMaxBytes) {
    status_ = Status::error(MOE_ERR_TOO_LONG, "grammar: larger than %llu MB when compiled",
                            static_cast<unsigned long long>(kMaxBytes >> 20));
  }
  Node node = {.edge = edge, .first = first};
  node.n = static_cast<uint32_t>(n) & kMostParts;
  node.kind = kind;
  if (status_.ok()) status_ = nodes_.push(node);
  return status_.ok() ? static_cast<uint32_t>(nodes_.size() - 1) : kNever;
}

template <class T>
uint32_t Network::append(Array<T>& to, const T* values, size_t n) {
  const size_t first = to.size();
  if (status_.ok()) status_ = to.append(values, n);
  return static_cast<uint32_t>(first);
}

uint32_t Network::bytes(std::span<const Edge> edges) {
  if (edges.size() == 1) return add(Node::kBytes, edges[0], 0, 1);
  const uint32_t first = append(edges_, edges.data(), edges.size());
  return add(Node::kBytes, {}, first, edges.size());
}

uint32_t Network::byte(uint8_t low, uint8_t high, uint32_t next) {
  const Edge edge = {low, high, next};
  return bytes({&edge, 1});
}

uint32_t Network::literal(std::string_view text, uint32_t next) {
  for (size_t i = text.size(); i-- > 0;) {
    const auto b = static_cast<uint8_t>(text[i]);
    next = byte(b, b, next);
  }
  return next;
}

uint32_t Network::split(std::span<const uint32_t> targets) {
  if (targets.size() == 1) return targets[0];
  const uint32_t first = append(targets_, targets.data(), targets.size());
  return add(Node::kSplit, {}, first, targets.size());
}

uint32_t Network::optional(uint32_t taken, uint32_t next) {
  const uint32_t targets[] = {taken, next};
  return split(targets);
}

uint32_t Network::call(uint32_t rule, uint32_t next) {
  return add(Node::kCall, {0, 0, next}, rule);
}

uint32_t Network::repeat(uint32_t rule, uint32_t min, uint32_t max, uint32_t next) {
  if (max == 0) return next;
  if (min == 1 && max == 1) return call(rule, next);
  const Counts counts = {min, max};
  const uint32_t at = append(counts_, &counts, 1);
  return add(Node::kRepeat, {0, 0, next}, rule, at);
}

uint32_t Network::open_split() { return add(Node::kSplit, {}); }

void Network::close_split(uint32_t node, std::span<const uint32_t> targets) {
  const uint32_t first = append(targets_, targets.data(), targets.size());
  if (!status_.ok()) return;
  nodes_[node].first = first;
  nodes_[node].n = static_cast<uint32_t>(targets.size()) & kMostParts;
}

uint32_t Network::add_rule() {
  if (status_.ok()) status_ = starts_.push(kNever);
  return status_.ok() ? static_cast<uint32_t>(starts_.size() - 1) : 0;
}

// Whether a node has the property, one of whose successors has it.
bool Network::follows(const Node& n, bool nullable, const Array<uint8_t>& holds) const {
  switch (n.kind) {
    case Node::kStop:
      return true;
    case Node::kBytes: {
      const std::span<const Edge> list = edges(n);
      return !nullable && std::any_of(list.begin(), list.end(),
                                      [&](const Edge& e) { return holds[e.next] != 0; });
    }
    case Node::kSplit: {
      const std::span<const uint32_t> list = targets(n);
      return std::any_of(list.begin(), list.end(), [&](uint32_t t) { return holds[t] != 0; });
    }
    case Node::kCall:
      return holds[starts_[n.rule()]] != 0 && holds[n.next()] != 0;
    case Node::kRepeat:
      return (counts(n).min == 0 || holds[starts_[n.rule()]] != 0) && holds[n.next()] != 0;
  }
  return false;
}

// The nodes that can reach the end of their rule; nullable: without reading.
Status Network::spread(bool nullable, Array<uint8_t>& holds) const {
  const Allocator& allocator = nodes_.allocator();
  Users users(allocator);
  MOE_TRY(users.first.resize(nodes_.size() + 1));
  const auto each = [&](auto&& f) {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      const Node& n = nodes_[i];
      if (n.kind == Node::kBytes) {
        for (const Edge& e : edges(n)) f(e.next, i);
      } else if (n.kind == Node::kSplit) {
        for (const uint32_t t : targets(n)) f(t, i);
      } else if (n.kind != Node::kStop) {
        f(n.next(), i);
        f(starts_[n.rule()], i);
      }
    }
  };
  each([&](uint32_t of, uint32_t) { ++users.first[of]; });
  uint32_t sum = 0;
  for (uint32_t& first : users.first) {
    sum += first;
    first = sum;
  }
  MOE_TRY(users.list.resize(sum));
  each([&](uint32_t of, uint32_t user) { users.list[--users.first[of]] = user; });
  MOE_TRY(holds.resize(nodes_.size()));
  Array<uint32_t> work(allocator);
  holds[kEnd] = 1;
  MOE_TRY(work.push(kEnd));
  while (!work.empty()) {
    const uint32_t of = work.back();
    work.pop();
    for (uint32_t i = users.first[of]; i < users.first[of + 1]; ++i) {
      const uint32_t user = users.list[i];
      if (holds[user] != 0 || !follows(nodes_[user], nullable, holds)) continue;
      holds[user] = 1;
      MOE_TRY(work.push(user));
    }
  }
  return {};
}

void Network::prune(const Array<uint8_t>& productive) {
  const auto keep = [](auto* first, Node& n, auto&& lost) {
    const auto kept = static_cast<size_t>(std::remove_if(first, first + n.n, lost) - first);
    n.n = static_cast<uint32_t>(kept) & kMostParts;
  };
  for (Node& n : nodes_) {
    if (n.kind == Node::kBytes) {
      Edge* const first = n.n == 1 ? &n.edge : edges_.data() + n.first;
      keep(first, n, [&](const Edge& e) { return productive[e.next] == 0; });
      if (n.n == 1) n.edge = *first;
    } else if (n.kind == Node::kSplit) {
      keep(targets_.data() + n.first, n, [&](uint32_t t) { return productive[t] == 0; });
    } else if (n.kind == Node::kRepeat && productive[starts_[n.rule()]] == 0) {
      counts_[n.n].max = 0;
    }
  }
}

void Network::classify() {
  bool begins[257] = {true};
  for (const Node& n : nodes_) {
    if (n.kind != Node::kBytes) continue;
    for (const Edge& e : edges(n)) begins[e.low] = begins[e.high + 1] = true;
  }
  for (uint32_t b = 0; b < 256; ++b) {
    if (begins[b]) ++n_classes_;
    class_of_[b] = static_cast<uint8_t>(n_classes_ - 1);
  }
}

namespace {

// The error for a grammar of which the tokenizer can write no text. `missing`: a byte that is
// needed somewhere and is no token; -1: there is none that is needed alone.
Status no_text(int missing) {
  if (missing < 0) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "grammar: the tokenizer lacks tokens for single bytes that every text "
                         "needs");
  }
  const char shown = missing > 0x20 && missing < 0x7F ? static_cast<char>(missing) : '?';
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "grammar: the tokenizer has no token for the byte 0x%02X ('%c') alone, and "
                       "without such tokens no text satisfies the grammar",
                       missing, shown);
}

}  // namespace

// *missing: a byte near the beginning of the texts that has no alternative and no token; -1: none.
Status Network::find_missing(const ByteSet& writable, int* missing) const {
  Array<uint8_t> seen(allocator());
  Array<uint32_t> queue(allocator());
  MOE_TRY(seen.resize(nodes_.size()));
  const auto go_to = [&](uint32_t node) -> Status {
    if (seen[node] != 0) return {};
    seen[node] = 1;
    return queue.push(node);
  };
  *missing = -1;
  MOE_TRY(go_to(starts_[root_]));
  for (size_t i = 0; i < queue.size() && *missing < 0; ++i) {
    const Node& n = nodes_[queue[i]];
    if (n.kind == Node::kBytes) {
      for (const Edge& e : edges(n)) {
        if (n.n == 1 && e.low == e.high && !writable[e.low]) *missing = e.low;
        MOE_TRY(go_to(e.next));
      }
    } else if (n.kind == Node::kSplit) {
      for (const uint32_t t : targets(n)) MOE_TRY(go_to(t));
    } else if (n.kind != Node::kStop) {
      MOE_TRY(go_to(starts_[n.rule()]));
      MOE_TRY(go_to(n.next()));
    }
  }
  return {};
}

// Cuts each range into those that the tokenizer can write.
Status Network::restrict_to(const ByteSet& writable) {
  for (Node& n : nodes_) {
    if (n.kind != Node::kBytes) continue;
    const std::span<const Edge> given = edges(n);
    const bool whole = std::all_of(given.begin(), given.end(), [&](const Edge& e) {
      return std::all_of(writable + e.low, writable + e.high + 1, [](bool w) { return w; });
    });
    if (whole) continue;
    const auto first = static_cast<uint32_t>(edges_.size());
    for (uint32_t j = 0; j < n.n; ++j) {
      const Edge e = n.n == 1 ? n.edge : edges_[n.first + j];
      for (uint32_t b = e.low; b <= e.high; ++b) {
        if (!writable[b]) continue;
        uint32_t last = b;
        while (last < e.high && writable[last + 1]) ++last;
        MOE_TRY(edges_.push({static_cast<uint8_t>(b), static_cast<uint8_t>(last), e.next}));
        b = last;
      }
    }
    n.first = first;
    n.n = (static_cast<uint32_t>(edges_.size()) - first) & kMostParts;
    if (n.n == 1) n.edge = edges_[first];
  }
  return {};
}

Status Network::satisfiable(std::span<const uint32_t> rules, Array<uint8_t>& out) const {
  MOE_TRY(status_);
  Array<uint8_t> productive(allocator());
  MOE_TRY(spread(false, productive));
  for (const uint32_t rule : rules) MOE_TRY(out.push(productive[starts_[rule]]));
  return {};
}

Status Network::finish(uint32_t root, const ByteSet& writable) {
  MOE_TRY(status_);
  root_ = root;
  Array<uint8_t> productive(nodes_.allocator());
  MOE_TRY(spread(false, productive));
  if (productive[starts_[root]] == 0) {
    return Status::error(MOE_ERR_RANGE, "grammar: no text satisfies it");
  }
  prune(productive);
  if (!std::all_of(std::begin(writable), std::end(writable), [](bool w) { return w; })) {
    int missing = -1;
    MOE_TRY(find_missing(writable, &missing));
    MOE_TRY(restrict_to(writable));
    productive.clear();
    MOE_TRY(spread(false, productive));
    if (productive[starts_[root]] == 0) return no_text(missing);
    prune(productive);
  }
  classify();
  return spread(true, nullable_);
}

}  // namespace moe::grammar
