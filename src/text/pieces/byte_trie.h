// SPDX-License-Identifier: MIT
#pragma once
// Maps byte strings to numbers; searched from a position in a text.

#include <string_view>

#include "src/base/array.h"

namespace moe {

struct TrieEntry {
  std::string_view key;  // not empty
  uint32_t value;
};

/// Immutable after build(). Nodes are breadth-first, so siblings are adjacent.
class ByteTrie final {
 public:
  explicit ByteTrie(const Allocator& allocator) : nodes_(allocator), labels_(allocator) {}

  /// Sorts `entries`. MOE_ERR_FORMAT for duplicate keys.
  Status build(Array<TrieEntry>& entries);
  bool empty() const { return nodes_.empty(); }
  const Allocator& allocator() const { return nodes_.allocator(); }

  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = ~0U;

  /// The child of `node` for `byte`, or kNone.
  uint32_t step(uint32_t node, uint8_t byte) const {
    if (node == kRoot) return root_[byte];
    const Node& n = nodes_[node];
    const uint8_t* first = labels_.data() + n.first_child;
    if (n.n_children > 16) {
      const uint8_t* found = std::lower_bound(first, first + n.n_children, byte);
      if (found == first + n.n_children || *found != byte) return kNone;
      return n.first_child + static_cast<uint32_t>(found - first);
    }
    for (uint32_t i = 0; i < n.n_children; ++i) {
      if (first[i] == byte) return n.first_child + i;
    }
    return kNone;
  }
  /// The number of the key that ends at `node`, or kNone.
  uint32_t value(uint32_t node) const { return nodes_[node].value; }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint32_t n_children = 0;
    uint32_t value = kNone;
  };
  Array<Node> nodes_;
  Array<uint8_t> labels_;  // of the edge that leads to each node
  uint32_t root_[256];
};

}  // namespace moe
