// SPDX-License-Identifier: MIT
// Searches for the next added token with a trie; marked bytes, which come from users, hold no
// special ones.
#include "src/text/pieces/added_tokens.h"

#include "src/base/string.h"
#include "src/text/characters/utf8.h"
#include "src/text/subword_text.h"

namespace moe {

// Length of the longest token at text[at], or 0. With marks, special tokens match only if none of
// their bytes is marked.
size_t AddedTokens::longest(std::string_view text, const uint8_t* marks, size_t at,
                            uint32_t* id) const {
  size_t n = 0;
  uint32_t node = ByteTrie::kRoot;
  bool marked = false;
  for (size_t i = at; i < text.size(); ++i) {
    node = trie_.step(node, static_cast<uint8_t>(text[i]));
    if (node == ByteTrie::kNone) break;
    marked = marked || (marks != nullptr && marks[i] != 0);
    if (trie_.value(node) == ByteTrie::kNone) continue;
    if (marked && (vocabulary_->flags(trie_.value(node)) & kAddedSpecial) != 0) continue;
    *id = trie_.value(node);
    n = i + 1 - at;
  }
  return n;
}

bool AddedTokens::find(std::string_view text, size_t* at, size_t floor, bool special,
                       Match* match) const {
  return search(text, nullptr, at, floor, special, match);
}

bool AddedTokens::find_unmarked(std::string_view text, std::span<const uint8_t> marks, size_t* at,
                                size_t floor, Match* match) const {
  return search(text, marks.data(), at, floor, true, match);
}

bool AddedTokens::search(std::string_view text, const uint8_t* marks, size_t* at, size_t floor,
                         bool special, Match* match) const {
  if (trie_.empty()) return false;
  while (*at < text.size()) {
    uint32_t id = 0;
    const size_t n = longest(text, marks, *at, &id);
    if (n == 0) {
      ++*at;
      continue;
    }
    const uint8_t flags = vocabulary_->flags(id);
    *match = {*at, *at + n, static_cast<int32_t>(id)};
    *at += n;
    if ((flags & kAddedSpecial) != 0 && !special) continue;
    if (!match_surroundings(flags, text, floor, match)) continue;
    return true;
  }
  return false;
}

}  // namespace moe
