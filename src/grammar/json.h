// SPDX-License-Identifier: MIT
#pragma once
// A text of JSON as a tree.

#include "src/base/string.h"

namespace moe::grammar {

class Json final {
 public:
  enum Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  static constexpr uint32_t kNone = ~uint32_t{0};

  explicit Json(const Allocator& a) : nodes_(a), texts_(a), slots_(a) {}
  /// RFC 8259, and no name twice in an object. Errors name the byte.
  Status parse(std::string_view text);

  uint32_t root() const { return 0; }
  Kind kind(uint32_t i) const { return nodes_[i].kind; }
  bool is_bool(uint32_t i) const { return kind(i) == kTrue || kind(i) == kFalse; }
  /// A string's content, or a number as it is written.
  std::string_view text(uint32_t i) const { return view(nodes_[i].text, nodes_[i].n_text); }
  /// The name of a member.
  std::string_view name(uint32_t i) const { return view(nodes_[i].name, nodes_[i].n_name); }
  uint32_t first(uint32_t i) const { return nodes_[i].first; }  // child; kNone: none
  uint32_t next(uint32_t i) const { return nodes_[i].next; }    // sibling
  uint32_t parent(uint32_t i) const { return nodes_[i].parent; }
  uint32_t size(uint32_t i) const { return nodes_[i].n_children; }
  /// A member of an object; kNone.
  uint32_t find(uint32_t object, std::string_view name) const;
  uint32_t element(uint32_t array, uint32_t index) const;
  /// Where it is, as a JSON pointer behind "#".
  Status path(uint32_t i, String& to) const;
  const Allocator& allocator() const { return nodes_.allocator(); }
  uint32_t n_nodes() const { return static_cast<uint32_t>(nodes_.size()); }

 private:
  friend class JsonReader;
  struct Node {
    Kind kind = kNull;
    uint32_t text = 0, n_text = 0;
    uint32_t name = 0, n_name = 0;
    uint32_t parent = kNone;
    uint32_t first = kNone;
    uint32_t last = kNone;
    uint32_t next = kNone;
    uint32_t n_children = 0;
  };
  std::string_view view(uint32_t begin, uint32_t n) const { return {texts_.data() + begin, n}; }

  uint64_t hash(uint32_t object, std::string_view name) const;
  Status index();

  Array<Node> nodes_;
  Array<char> texts_;
  Array<uint32_t> slots_;  // a hash table of members by object and name: node + 1
};

/// A step of a JSON pointer in a URI: ~0 and ~1 mean ~ and /, and %XX a byte.
Status unescape_pointer(std::string_view step, String& to);

}  // namespace moe::grammar
