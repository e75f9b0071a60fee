// SPDX-License-Identifier: MIT
#pragma once
// Unigram language model segmentation of one piece (Kudo 2018, arXiv:1804.10959): the segmentation
// with the highest total score.

#include "src/text/pieces/byte_trie.h"
#include "src/text/pieces/vocabulary.h"

namespace moe {

/// Scratch memory of one encode() call.
struct UnigramScratch {
  explicit UnigramScratch(const Allocator& a) : best(a), parts(a) {}

  struct Best {  // of the text before a position
    double score = 0;
    int32_t id = -1;
    uint32_t start = ~0U;  // of its last token; ~0: none found yet
  };
  struct Part {
    uint32_t begin;
    uint32_t end;
  };
  Array<Best> best;
  Array<Part> parts;
};

/// Immutable after create().
class Unigram final {
 public:
  explicit Unigram(const Allocator& allocator) : trie_(allocator) {}

  /// Requires a finite score for every token and at most 1024 bytes per token. `vocabulary` and the
  /// spec's memory must outlive this.
  Status create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  /// Appends the ids of `piece` (valid UTF-8). Consecutive unknown characters form one unknown
  /// text: its bytes if byte_fallback covers them, otherwise the unknown token; MOE_ERR_TEXT
  /// without one.
  Status encode(std::string_view piece, UnigramScratch& scratch, Array<int32_t>& ids) const;

 private:
  Status search(std::string_view piece, UnigramScratch& scratch) const;
  Status put(std::string_view text, Array<int32_t>& ids) const;

  const Vocabulary* vocabulary_ = nullptr;
  const double* scores_ = nullptr;
  ByteTrie trie_;
  double unk_score_ = 0;
  int32_t unk_id_ = -1;
  int32_t byte_ids_[256] = {};
  bool byte_fallback_ = false;
};

}  // namespace moe
