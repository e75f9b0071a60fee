// SPDX-License-Identifier: MIT
#pragma once
// Tokens that are found in the text before all other steps.

#include "src/text/pieces/byte_trie.h"
#include "src/text/pieces/vocabulary.h"

namespace moe {

/// Leftmost-longest search with the conditions of `tokenizers`: a rejected match (not a single
/// word, or a disabled special token) still consumes its text.
class AddedTokens final {
 public:
  explicit AddedTokens(const Allocator& allocator) : trie_(allocator) {}

  /// `entries`: the texts to search and their ids.
  Status create(Array<TrieEntry>& entries, const Vocabulary& vocabulary) {
    vocabulary_ = &vocabulary;
    return trie_.build(entries);
  }
  bool empty() const { return trie_.empty(); }

  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };
  /// The next token from text[*at] on; moves *at after it. Stripped white space (not left of
  /// `floor`) is part of the match, but *at does not skip it: a token inside it is found as well.
  bool find(std::string_view text, size_t* at, size_t floor, bool special, Match* match) const;
  /// The same, with special tokens only where no byte is marked; marks: one per byte of `text`. A
  /// disabled special token consumes nothing: other tokens at its position are found.
  bool find_unmarked(std::string_view text, std::span<const uint8_t> marks, size_t* at,
                     size_t floor, Match* match) const;

 private:
  size_t longest(std::string_view text, const uint8_t* marks, size_t at, uint32_t* id) const;
  bool search(std::string_view text, const uint8_t* marks, size_t* at, size_t floor, bool special,
              Match* match) const;

  ByteTrie trie_;
  const Vocabulary* vocabulary_ = nullptr;
};

}  // namespace moe
