// SPDX-License-Identifier: MIT
// Looks the first piece and the continuing ones up in two tries; a word that does not come out
// whole is unknown.
#include "src/text/pieces/wordpiece.h"

#include "src/base/string.h"
#include "src/text/characters/utf8.h"

namespace moe {
namespace {

constexpr size_t kMaxPrefixBytes = 64;
constexpr size_t kShownBytes = 64;  // of a word in a message

bool longer_than(std::string_view word, uint32_t characters) {
  if (word.size() <= characters) return false;
  size_t n = 0;
  for (size_t i = 0; i < word.size(); i += utf8_next(word.data() + i).length) ++n;
  return n > characters;
}

// The end of the longest key of `trie` that begins at `at`, or `at`; *id becomes its value.
size_t longest(const ByteTrie& trie, std::string_view word, size_t at, uint32_t* id) {
  size_t best = at;
  uint32_t node = ByteTrie::kRoot;
  for (size_t end = at; end < word.size() && !trie.empty();) {
    node = trie.step(node, static_cast<uint8_t>(word[end]));
    if (node == ByteTrie::kNone) break;
    ++end;
    if (trie.value(node) == ByteTrie::kNone) continue;
    best = end;
    *id = trie.value(node);
  }
  return best;
}

}  // namespace

Status WordPiece::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  unk_id_ = spec.unk_id;
  max_characters_ = spec.max_word_characters;
  const std::string_view prefix = spec.continuing_prefix;
  if (prefix.size() > kMaxPrefixBytes || !utf8_is_valid(prefix)) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: prefix: expected at most %zu bytes of UTF-8",
                         kMaxPrefixBytes);
  }
  Array<TrieEntry> first(first_.allocator()), later(first_.allocator());
  for (uint32_t id = 0; id < vocabulary.size(); ++id) {
    if ((vocabulary.flags(id) & kTokenInModel) == 0) continue;
    const std::string_view piece = vocabulary.piece(id);
    if (piece.size() > kMaxPieceBytes) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: token %u is longer than %zu bytes", id,
                           kMaxPieceBytes);
    }
    MOE_TRY(first.push({piece, id}));
    const bool continues = piece.size() > prefix.size() && slice(piece, 0, prefix.size()) == prefix;
    if (continues) MOE_TRY(later.push({slice(piece, prefix.size()), id}));
  }
  MOE_TRY(first_.build(first));
  return later_.build(later);
}

Status WordPiece::put_unknown(std::string_view word, Array<int32_t>& ids) const {
  if (unk_id_ >= 0) return ids.push(unk_id_);
  size_t shown = std::min(word.size(), kShownBytes);
  shown = utf8_valid_prefix(slice(word, 0, shown));
  return Status::error(MOE_ERR_TEXT, "text: \"%.*s\" has no tokens, and there is no unknown one",
                       static_cast<int>(shown), word.data());
}

Status WordPiece::encode(std::string_view word, Array<int32_t>& ids) const {
  if (longer_than(word, max_characters_)) return put_unknown(word, ids);
  const size_t n_before = ids.size();
  for (size_t at = 0; at < word.size();) {
    uint32_t id = 0;
    const size_t end = longest(at == 0 ? first_ : later_, word, at, &id);
    if (end == at) {
      MOE_TRY(ids.resize(n_before));
      return put_unknown(word, ids);
    }
    MOE_TRY(ids.push(static_cast<int32_t>(id)));
    at = end;
  }
  return {};
}

}  // namespace moe
