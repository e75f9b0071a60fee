// SPDX-License-Identifier: MIT
// Builds the trie from sorted keys, breadth first; two equal keys are an error.
#include "src/text/pieces/byte_trie.h"

namespace moe {

Status ByteTrie::build(Array<TrieEntry>& entries) {
  std::fill(std::begin(root_), std::end(root_), kNone);
  if (entries.empty()) return {};
  std::sort(entries.begin(), entries.end(),
            [](const TrieEntry& a, const TrieEntry& b) { return a.key < b.key; });

  struct Range {  // the sorted keys below a node, equal in their first `depth` bytes
    size_t begin;
    size_t end;
    size_t depth;
  };
  Array<Range> ranges(nodes_.allocator());
  MOE_TRY(ranges.push({0, entries.size(), 0}));
  MOE_TRY(nodes_.push({}));
  MOE_TRY(labels_.push(0));
  for (size_t node = 0; node < nodes_.size(); ++node) {
    Range r = ranges[node];
    if (entries[r.begin].key.size() == r.depth) {
      nodes_[node].value = entries[r.begin].value;
      ++r.begin;
      if (r.begin < r.end && entries[r.begin].key.size() == r.depth) {
        return Status::error(MOE_ERR_FORMAT, "tokenizer: two tokens are the same text, \"%.*s\"",
                             static_cast<int>(std::min<size_t>(r.depth, 64)),
                             entries[r.begin].key.data());
      }
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (r.begin < r.end) {
      const char label = entries[r.begin].key[r.depth];
      size_t end = r.begin + 1;
      while (end < r.end && entries[end].key[r.depth] == label) ++end;
      if (nodes_.size() >= kNone) return out_of_memory("trie", ~0ULL);
      if (node == kRoot) root_[static_cast<uint8_t>(label)] = static_cast<uint32_t>(nodes_.size());
      MOE_TRY(nodes_.push({}));
      MOE_TRY(labels_.push(static_cast<uint8_t>(label)));
      MOE_TRY(ranges.push({r.begin, end, r.depth + 1}));
      ++nodes_[node].n_children;
      r.begin = end;
    }
  }
  return {};
}

}  // namespace moe
