// SPDX-License-Identifier: MIT
#pragma once
// Parts of a Tokenizer. Private to this folder.

#include "src/text/pieces/added_tokens.h"
#include "src/text/pieces/vocabulary.h"
#include "src/text/steps/decoder.h"
#include "src/text/subword_text.h"
#include "src/text/tokenizer.h"

namespace moe {

struct TokenizerParts final {
  enum Kind { kBytes, kBpe, kUnigram, kWordPiece };

  explicit TokenizerParts(const Allocator& a)
      : allocator(&a),
        vocabulary(a),
        added(a),
        decoder(a),
        prefix(a),
        suffix(a),
        between(a),
        subwords(a) {}

  const Allocator* allocator;
  Kind kind = kBytes;
  int32_t n_ids = 0;  // ids that a model may produce: its vocabulary can be larger
  int32_t unk_id = -1;
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t pad_id = -1;
  Vocabulary vocabulary;
  AddedTokens added;  // searched in the original text
  TokenDecoder decoder;
  Array<int32_t> prefix;
  Array<int32_t> suffix;
  Array<int32_t> between;
  bool second_type = false;
  SubwordText subwords;  // empty for the kind "bytes"

  /// Input of the decoder for an id: its piece, normalised if it was searched in normalised text.
  std::string_view decoded_piece(uint32_t id) const;
};

/// The special tokens that are recognised: all, none, or those without a marked byte.
struct SpecialRule {
  bool find = false;
  std::span<const uint8_t> marks;  // one per byte, or empty
};

/// Appends the ids of `text` without prefix and suffix (encode.cpp). marks: empty, or one per byte;
/// with parse_special, special tokens are recognised where no byte is marked.
Status encode_text(const TokenizerParts& parts, std::string_view text, bool parse_special,
                   std::span<const uint8_t> marks, Array<int32_t>& ids);

/// Calls f(part, at_start) for text between added tokens; appends added tokens to `ids`.
template <class F>
Status between_tokens(const AddedTokens& added, std::string_view text, const SpecialRule& rule,
                      Array<int32_t>& ids, F&& f) {
  size_t done = 0;
  size_t at = 0;
  AddedTokens::Match match;
  const auto find = [&] {
    return rule.marks.empty() ? added.find(text, &at, done, rule.find, &match)
                              : added.find_unmarked(text, rule.marks, &at, done, &match);
  };
  while (find()) {
    if (done < match.begin) MOE_TRY(f(slice(text, done, match.begin - done), done == 0));
    MOE_TRY(ids.push(match.id));
    done = match.end;
  }
  return done < text.size() ? f(slice(text, done), done == 0) : Status();
}

}  // namespace moe
