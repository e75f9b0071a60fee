// SPDX-License-Identifier: MIT
#pragma once
// Parts of a tokenizer whose pieces are subwords (BPE, Unigram, WordPiece): patterns, normalizer,
// merges. Compiled from subword_text.cpp or, with MOE_TEXT=OFF, from bytes_only.cpp, which rejects
// it.

#include "src/text/pieces/added_tokens.h"

#if MOE_TEXT
#include "src/text/pieces/bpe.h"
#include "src/text/pieces/unigram.h"
#include "src/text/pieces/wordpiece.h"
#include "src/text/steps/normalizer.h"
#include "src/text/steps/pre_tokenizer.h"
#endif

namespace moe {

struct SpecialRule;
struct TokenizerParts;
struct TokenizerSpec;

struct SubwordText final {
#if MOE_TEXT
  explicit SubwordText(const Allocator& a)
      : added(a),
        normalizer(a),
        pre_tokenizer(a),
        bpe(a),
        unigram(a),
        wordpiece(a),
        texts(a),
        pieces(a) {}

  RegexLibrary library;  // declared before the patterns, which use its memory
  AddedTokens added;     // searched in the normalised text
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  Unigram unigram;
  WordPiece wordpiece;
  Array<char> texts;  // of added tokens searched there
  struct Piece {
    uint32_t id;
    uint32_t begin;
    uint32_t end;
  };
  Array<Piece> pieces;  // their positions in `texts`, by id
  static constexpr bool kBuilt = true;
#else
  explicit SubwordText(const Allocator&) {}
  static constexpr bool kBuilt = false;
#endif

  /// MOE_ERR_UNSUPPORTED if this build supports only the kind "bytes".
  static Status check_kind(std::string_view kind);
  /// Fills parts->subwords and parts->decoder; vocabulary and kind are already set.
  static Status create(const TokenizerSpec& spec, TokenizerParts* parts);
  /// The text of an added token searched in the normalised text.
  std::string_view piece(uint32_t id) const;
};

/// As encode_text(), for any kind but "bytes".
Status encode_subwords(const TokenizerParts& parts, std::string_view text, const SpecialRule& rule,
                       Array<int32_t>& ids);

/// Applies an added token's flags to the surrounding text. False: no match. Stripped white space,
/// not left of `floor`, becomes part of the match.
bool match_surroundings(uint8_t flags, std::string_view text, size_t floor,
                        AddedTokens::Match* match);

}  // namespace moe
