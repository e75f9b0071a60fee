#pragma once
// Tokens that are found in the text before anything else is done to it.

#include "src/text/pieces/byte_trie.h"
#include "src/text/pieces/vocabulary.h"

namespace moe {

/// Leftmost-longest search, with the side conditions of `tokenizers`: a match that is refused (not
/// a single word, or a special token that may not be found) still uses up its text.
class AddedTokens final {
 public:
  explicit AddedTokens(const Allocator& allocator) : trie_(allocator) {}

  /// `entries` are the texts to look for and their ids.
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
  /// The next token from text[*at] on, and *at behind it. Stripped white space (not left of
  /// `floor`) counts as part of the match, but *at does not move over it: a token within it is
  /// found as well.
  bool find(std::string_view text, size_t* at, size_t floor, bool special, Match* match) const;
  /// The same with special tokens only where no byte is marked; marks: one for each byte of `text`.
  /// A special token that may not be found hides nothing: what else begins there is found.
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
