// SPDX-License-Identifier: MIT
#pragma once
// A grammar over bytes as a network: nodes that read a byte, branch, or call a rule.

#include <string_view>

#include "src/base/array.h"

namespace moe::grammar {

inline constexpr uint32_t kEnd = 0;    // the node at which every rule ends
inline constexpr uint32_t kNever = 1;  // a node from which no text leads to the end
inline constexpr uint32_t kNoLimit = ~uint32_t{0};

struct Edge {
  uint8_t low;
  uint8_t high;
  uint32_t next;
};

/// 16 bytes, as there may be a million.
struct Node {
  enum Kind : uint8_t {
    kStop,    // the end of a rule
    kBytes,   // one of the n edges from `first` on; if there is one, `edge`
    kSplit,   // one of the n targets from `first` on, without reading
    kCall,    // the text of a rule, then next()
    kRepeat,  // the text of a rule as often as Network::counts() says, then next()
  };
  Edge edge = {};
  uint32_t first = 0;
  uint32_t n : 29 = 0;
  Kind kind : 3 = kStop;

  uint32_t rule() const { return first; }
  uint32_t next() const { return edge.next; }
};

/// How often a rule is repeated.
struct Counts {
  uint32_t min;
  uint32_t max;
};

/// The bytes that a tokenizer has tokens for, one each.
using ByteSet = bool[256];

/// Front ends build a network from the end to the beginning: every function takes the node that
/// follows and returns the node that comes before it. The first error is kept: later calls do
/// nothing, and finish() returns it.
class Network final {
 public:
  explicit Network(const Allocator& allocator);

  uint32_t bytes(std::span<const Edge> edges);
  uint32_t byte(uint8_t low, uint8_t high, uint32_t next);
  uint32_t literal(std::string_view text, uint32_t next);
  uint32_t split(std::span<const uint32_t> targets);
  uint32_t optional(uint32_t taken, uint32_t next);
  uint32_t call(uint32_t rule, uint32_t next);
  /// max: kNoLimit for any number.
  uint32_t repeat(uint32_t rule, uint32_t min, uint32_t max, uint32_t next);
  /// A branch whose targets become known later, for loops.
  uint32_t open_split();
  void close_split(uint32_t node, std::span<const uint32_t> targets);

  uint32_t add_rule();
  void define(uint32_t rule, uint32_t start) {
    if (status_.ok()) starts_[rule] = start;
  }

  const Allocator& allocator() const { return nodes_.allocator(); }
  void fail(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  const Status& status() const { return status_; }

  /// Removes what cannot lead to the end with the bytes that a tokenizer can write. MOE_ERR_RANGE
  /// if nothing is left.
  Status finish(uint32_t root, const ByteSet& writable);

  /// Before finish(): whether a text satisfies a rule.
  Status satisfiable(std::span<const uint32_t> rules, Array<uint8_t>& out) const;

  // After finish():
  uint32_t root() const { return starts_[root_]; }
  uint32_t start(uint32_t rule) const { return starts_[rule]; }
  bool nullable(uint32_t rule) const { return nullable_[starts_[rule]] != 0; }
  const Node& node(uint32_t i) const { return nodes_[i]; }
  std::span<const Edge> edges(const Node& n) const {
    return {n.n == 1 ? &n.edge : edges_.data() + n.first, n.n};
  }
  /// How often a kRepeat node repeats its rule.
  const Counts& counts(const Node& n) const { return counts_[n.n]; }
  std::span<const uint32_t> targets(const Node& n) const {
    return {targets_.data() + n.first, n.n};
  }
  uint32_t n_rules() const { return static_cast<uint32_t>(starts_.size()); }
  /// Bytes that no edge tells apart have the same class.
  uint8_t class_of(uint8_t byte) const { return class_of_[byte]; }
  uint32_t n_classes() const { return n_classes_; }
  uint64_t n_bytes() const;

 private:
  uint32_t add(Node::Kind kind, const Edge& edge, uint32_t first = 0, size_t n = 0);
  template <class T>
  uint32_t append(Array<T>& to, const T* values, size_t n);
  Status spread(bool nullable, Array<uint8_t>& holds) const;
  bool follows(const Node& n, bool nullable, const Array<uint8_t>& holds) const;
  void prune(const Array<uint8_t>& productive);
  void classify();
  Status find_missing(const ByteSet& writable, int* missing) const;
  Status restrict_to(const ByteSet& writable);

  Array<Node> nodes_;
  Array<Edge> edges_;
  Array<Counts> counts_;
  Array<uint32_t> targets_;
  Array<uint32_t> starts_;   // of each rule
  Array<uint8_t> nullable_;  // per node: the empty text leads to the rule's end
  Status status_;
  uint32_t root_ = 0;
  uint32_t n_classes_ = 0;
  uint8_t class_of_[256] = {};
};

}  // namespace moe::grammar
