#pragma once
// What a Tokenizer consists of; for the files of this folder.

#include "src/text/added_tokens.h"
#include "src/text/decoder.h"
#include "src/text/tokenizer.h"
#include "src/text/vocabulary.h"

#if MOE_TEXT
#include "src/text/bpe.h"
#include "src/text/normalizer.h"
#include "src/text/pre_tokenizer.h"
#include "src/text/unigram.h"
#endif

namespace moe {

struct TokenizerParts final {
  enum Kind { kBytes, kBpe, kUnigram };

  explicit TokenizerParts(const Allocator& a)
      : allocator(&a),
        vocabulary(a),
        added(a),
        decoder(a),
        prefix(a),
        suffix(a)
#if MOE_TEXT
        ,
        added_normalized(a),
        normalizer(a),
        pre_tokenizer(a),
        bpe(a),
        unigram(a),
        normalized_texts(a),
        normalized(a)
#endif
  {
  }

  const Allocator* allocator;
  Kind kind = kBytes;
  int32_t n_ids = 0;  // ids that a model may give: its vocabulary can be larger than ours
  int32_t unk_id = -1;
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t pad_id = -1;
#if MOE_TEXT
  RegexLibrary library;  // before the patterns, which live in its memory
#endif
  Vocabulary vocabulary;
  AddedTokens added;  // looked for in the text as it comes
  TokenDecoder decoder;
  Array<int32_t> prefix;
  Array<int32_t> suffix;
#if MOE_TEXT
  AddedTokens added_normalized;  // looked for in the normalised text
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  Unigram unigram;
  Array<char> normalized_texts;  // of the added tokens that are looked for there
  struct NormalizedText {
    uint32_t id;
    uint32_t begin;
    uint32_t end;
  };
  Array<NormalizedText> normalized;  // by id
#endif

  /// What the decoder gets for an id: its piece, normalised where the text it was found in was.
  std::string_view decoded_piece(uint32_t id) const;
};

/// Appends the ids of `text` without prefix and suffix (encode.cpp). marks: empty, or one for each
/// byte; with parse_special, special tokens are found where no byte is marked.
Status encode_text(const TokenizerParts& parts, std::string_view text, bool parse_special,
                   Span<const uint8_t> marks, Array<int32_t>& ids);

}  // namespace moe
