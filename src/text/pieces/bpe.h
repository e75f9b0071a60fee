// SPDX-License-Identifier: MIT
#pragma once
// Byte-pair encoding of one piece (Sennrich et al. 2016, arXiv:1508.07909), over byte-level
// characters or with SentencePiece's byte fallback.

#include "src/text/pieces/vocabulary.h"

namespace moe {

/// Scratch memory of one encode() call.
struct BpeScratch {
  explicit BpeScratch(const Allocator& a) : symbols(a), heap(a), text(a) {}

  struct Symbol {
    int32_t id;
    uint32_t rank;  // of the merge with the next symbol; ~0: none
    int32_t merged;
    int32_t previous;  // for long pieces
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int32_t merged;
  };
  Array<Symbol> symbols;
  Array<Candidate> heap;
  Array<char> text;
};

/// Immutable after create().
class Bpe final {
 public:
  explicit Bpe(const Allocator& allocator) : pairs_(allocator), small_(allocator) {}

  /// Checks the merges: ids, texts and duplicates. `vocabulary` and the spec's memory must outlive
  /// this.
  Status create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  /// Appends the ids of `piece` (valid UTF-8). Skips a character without a token if there is
  /// neither a fallback nor an unknown token.
  Status encode(std::string_view piece, BpeScratch& scratch, Array<int32_t>& ids) const;

  /// SentencePiece has no pre-tokenizer: a text is one piece. If no merge joins a U+2581 to the
  /// preceding text, words can be encoded separately, which is faster with the same result.
  bool splits_words() const { return splits_words_; }
  /// End of the word that begins at `begin`: the next U+2581 that another character precedes, or
  /// the piece's end.
  static size_t word_end(std::string_view piece, size_t begin);

 private:
  struct Pair {
    uint32_t left = 0;
    uint32_t right = 0;
    uint32_t rank = ~0U;  // ~0: free
    uint32_t merged = 0;
  };
  Status add_pair(uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);
  const Pair* find_pair(int32_t left, int32_t right) const;
  Status affix(std::string_view character, bool first, bool last, BpeScratch& scratch,
               std::string_view* symbol) const;
  Status to_symbols(std::string_view piece, BpeScratch& scratch) const;
  bool finds_words() const;
  void rank_symbol(BpeScratch& scratch, size_t i, size_t next) const;
  void merge_short(BpeScratch& scratch) const;
  Status merge_long(BpeScratch& scratch) const;

  const Vocabulary* vocabulary_ = nullptr;
  Array<Pair> pairs_;     // open addressing
  Array<int32_t> small_;  // ids of the characters below U+0800
  int32_t byte_ids_[256] = {};
  bool byte_fallback_ = false;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
  bool splits_words_ = false;
  int32_t unk_id_ = -1;
  std::string_view prefix_;
  std::string_view suffix_;
};

/// Ids of the tokens <0x00> .. <0xFF>; -1 if missing.
void find_byte_tokens(const Vocabulary& vocabulary, int32_t ids[256]);

}  // namespace moe
