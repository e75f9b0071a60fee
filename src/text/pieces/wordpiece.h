// SPDX-License-Identifier: MIT
#pragma once
// WordPiece segmentation of one word (Schuster and Nakajima 2012; Devlin et al. 2018,
// arXiv:1810.04805): the longest piece that matches, from left to right.

#include "src/text/pieces/byte_trie.h"
#include "src/text/pieces/vocabulary.h"

namespace moe {

/// Immutable after create().
class WordPiece final {
 public:
  explicit WordPiece(const Allocator& allocator) : first_(allocator), later_(allocator) {}

  /// Requires at most 1024 bytes per token. `vocabulary` and the spec's memory must outlive this.
  Status create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  /// Appends the ids of `word` (valid UTF-8). A word that is too long, or of which some part is no
  /// piece, is one unknown token; MOE_ERR_TEXT without one.
  Status encode(std::string_view word, Array<int32_t>& ids) const;

 private:
  Status put_unknown(std::string_view word, Array<int32_t>& ids) const;

  ByteTrie first_;  // pieces that may begin a word
  ByteTrie later_;  // those with the continuing prefix, without it
  int32_t unk_id_ = -1;
  uint32_t max_characters_ = 0;
};

}  // namespace moe
