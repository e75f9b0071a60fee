// SPDX-License-Identifier: MIT
// Splits a text at added tokens, normalises and splits the rest, and encodes each piece; words that
// repeat are remembered.
#include <algorithm>

#include "src/text/characters/utf8.h"
#include "src/text/parts.h"

namespace moe {
namespace {

// Caches the ids of earlier pieces of the same text: words repeat.
class WordCache final {
 public:
  explicit WordCache(const Allocator& a) : entries_(a) {}

  /// Prepares for a new text. Not used for a few pieces.
  Status start(size_t n_pieces) {
    entries_.clear();
    return entries_.resize(n_pieces < 256 ? 0 : kEntries);
  }
  /// The piece's entry; *hit tells if it contains that piece.
  struct Entry {
    uint32_t begin = 0;
    uint32_t length = 0;
    uint32_t n_ids = 0;
    uint32_t hash = 0;
    size_t first_id = 0;
  };
  Entry* find(std::string_view text, const TextPiece& piece, bool* hit) {
    *hit = false;
    const uint32_t length = piece.end - piece.begin;
    if (entries_.empty() || length > kLongest) return nullptr;
    const std::string_view word = slice(text, piece.begin, length);
    const uint64_t hash = hash_bytes(word);
    Entry* e = &entries_[hash & (kEntries - 1)];
    const auto tag = static_cast<uint32_t>(hash >> 32);
    *hit = e->length == length && e->hash == tag && slice(text, e->begin, length) == word;
    if (!*hit) *e = {piece.begin, 0, 0, tag, 0};  // length 0: empty
    return e;
  }

 private:
  static constexpr size_t kEntries = 4096;
  static constexpr uint32_t kLongest = 64;
  Array<Entry> entries_;
};

class Encoder final {
 public:
  Encoder(const TokenizerParts& parts, Array<int32_t>& ids)
      : parts_(parts),
        ids_(ids),
        pre_(*parts.allocator),
        bpe_(*parts.allocator),
        unigram_(*parts.allocator),
        cache_(*parts.allocator),
        repaired_(*parts.allocator),
        normalized_{Array<char>(*parts.allocator), Array<char>(*parts.allocator)} {}

  Status run(std::string_view text, const SpecialRule& rule) {
    MOE_TRY(search_.create(parts_.subwords.library));
    MOE_TRY(utf8_repair(text, repaired_, &text));
    const char* const all = text.data();
    const auto raw = [&](std::string_view part, bool at_start) -> Status {
      // Marks cannot be mapped to normalised text: any mark disables all special tokens.
      bool special = rule.find;
      for (size_t i = 0; i < part.size() && !rule.marks.empty() && special; ++i) {
        special = rule.marks[static_cast<size_t>(part.data() - all) + i] == 0;
      }
      std::string_view normal;
      MOE_TRY(parts_.subwords.normalizer.run(part, search_, normalized_, &normal, &at_start));
      const auto inner = [&](std::string_view inner_part, bool inner_start) {
        return encode_part(inner_part, at_start && inner_start);
      };
      return between_tokens(parts_.subwords.added, normal, {special, {}}, ids_, inner);
    };
    return between_tokens(parts_.added, text, rule, ids_, raw);
  }

 private:
  Status encode_part(std::string_view part, bool at_start) {
    std::string_view text;
    std::span<const TextPiece> pieces;
    MOE_TRY(parts_.subwords.pre_tokenizer.run(part, at_start, search_, pre_, &text, &pieces));
    const bool words = parts_.kind == TokenizerParts::kBpe && parts_.subwords.bpe.splits_words();
    constexpr size_t kWordBytes = 8;  // average, roughly
    MOE_TRY(
        cache_.start(words ? std::max(pieces.size(), text.size() / kWordBytes) : pieces.size()));
    for (const TextPiece& piece : pieces) {
      if (!words) {
        MOE_TRY(encode_piece(text, piece));
        continue;
      }
      const std::string_view whole = slice(text, 0, piece.end);
      for (uint32_t at = piece.begin; at < piece.end;) {
        const auto end = static_cast<uint32_t>(Bpe::word_end(whole, at));
        MOE_TRY(encode_piece(text, {at, end, false}));
        at = end;
      }
    }
    return {};
  }

  Status encode_piece(std::string_view text, const TextPiece& piece) {
    bool hit = false;
    WordCache::Entry* entry = cache_.find(text, piece, &hit);
    if (hit) return repeat(entry->first_id, entry->n_ids);
    const size_t first = ids_.size();
    const std::string_view word = slice(text, piece.begin, piece.end - piece.begin);
    MOE_TRY(encode_word(word));
    if (entry == nullptr) return {};
    entry->length = piece.end - piece.begin;
    entry->first_id = first;
    entry->n_ids = static_cast<uint32_t>(ids_.size() - first);
    return {};
  }

  Status encode_word(std::string_view word) {
    if (parts_.kind == TokenizerParts::kBpe) return parts_.subwords.bpe.encode(word, bpe_, ids_);
    if (parts_.kind == TokenizerParts::kWordPiece)
      return parts_.subwords.wordpiece.encode(word, ids_);
    return parts_.subwords.unigram.encode(word, unigram_, ids_);
  }

  Status repeat(size_t first, size_t n) {
    const size_t at = ids_.size();
    MOE_TRY(ids_.reserve(ids_.capacity() >= at + n ? at : 2 * (at + n)));
    MOE_TRY(ids_.resize(at + n));
    std::copy(ids_.begin() + first, ids_.begin() + first + n, ids_.begin() + at);
    return {};
  }

  const TokenizerParts& parts_;
  Array<int32_t>& ids_;
  RegexSearch search_;
  PreTokenizerScratch pre_;
  BpeScratch bpe_;
  UnigramScratch unigram_;
  WordCache cache_;
  Array<char> repaired_;
  Array<char> normalized_[2];
};

}  // namespace

Status encode_subwords(const TokenizerParts& parts, std::string_view text, const SpecialRule& rule,
                       Array<int32_t>& ids) {
  return Encoder(parts, ids).run(text, rule);
}

}  // namespace moe
