// SPDX-License-Identifier: MIT
#pragma once
// Specification of a tokenizer: views of caller-owned memory, as stored in the model file.

#include <cstdint>
#include <string_view>

#include "src/base/array.h"

namespace moe {

/// One step of a normaliser, pre-tokenizer or decoder. The kinds, named as in Hugging Face's
/// `tokenizers`, with the fields they use:
///
/// Normalisers: nfc nfd nfkc nfkd lowercase strip_accents nmt; strip (start, stop: not 0 = that
/// side); prepend (content); replace (pattern, regex, content); precompiled (data: a SentencePiece
/// charsmap); byte_level; and of Bert's: clean_text space_ideographs strip_nonspacing.
///
/// Pre-tokenizers: split (pattern, regex, behavior, invert); byte_level (flag: prepend a space;
/// regex: split with GPT-2's pattern first); metaspace (content: the one character that represents
/// a space, scheme, flag: split); digits (flag: one by one); punctuation (behavior); whitespace;
/// whitespace_split. behavior: removed isolated merged_with_previous merged_with_next contiguous.
/// scheme: always first never.
///
/// Decoders: byte_level; byte_fallback; fuse; metaspace (content, scheme); replace (pattern, plain
/// text only, content); strip (content: one character, start and stop: maximum counts); wordpiece
/// (content: the continuing prefix, flag: no spaces before punctuation). A decoder is S*
/// byte_fallback? S* [(fuse | byte_level) strip*], where S is replace, strip, metaspace or
/// wordpiece; without steps tokens are joined by spaces.
struct TextStepSpec {
  std::string_view kind;
  std::string_view pattern;
  std::string_view content;
  std::string_view behavior;
  std::string_view scheme;
  std::span<const uint8_t> data;
  uint32_t start = 0;
  uint32_t stop = 0;
  bool regex = false;
  bool invert = false;
  bool flag = false;
};

inline constexpr size_t kMaxSteps = 32;         // per kind
inline constexpr size_t kMaxContentBytes = 64;  // of TextStepSpec::content and a plain pattern

/// Bits of TokenizerSpec::added_flags.
enum AddedTokenFlag : uint8_t {
  kAddedSpecial = 1,      // skipped by decode(skip_special), found only with parse_special
  kAddedLstrip = 2,       // includes the white space on its left
  kAddedRstrip = 4,       // includes the white space on its right
  kAddedSingleWord = 8,   // not within a word
  kAddedNormalized = 16,  // searched after normalisation, itself normalised
  kAddedInModel = 32,     // also in the model's own vocabulary
  kAddedDecodesOnly = 64  // another token of the same text encodes it; with kAddedSpecial or alone
};

/// The memory of a spec must outlive its Tokenizer.
struct TokenizerSpec {
  std::string_view kind;  // "bytes", "bpe", "unigram", "wordpiece"

  /// Piece i ends with a zero byte, at token_bytes[token_ends[i] - 1]; empty = unused id. For
  /// "bytes" an empty table stands for the 256 bytes; otherwise piece i < 256 must be that byte.
  std::span<const uint8_t> token_bytes;
  std::span<const uint32_t> token_ends;
  std::span<const double> scores;    // (n_tokens) for "unigram"
  std::span<const uint32_t> merges;  // (n_merges, 3) for "bpe": left, right, result; best first

  std::span<const uint32_t> added_ids;
  std::span<const uint8_t> added_flags;  // same length, AddedTokenFlag

  std::span<const TextStepSpec> normalizers;
  std::span<const TextStepSpec> pre_tokenizers;
  std::span<const TextStepSpec> decoders;

  std::span<const uint32_t> prefix;  // precedes a text if encode() adds special tokens
  std::span<const uint32_t> suffix;
  std::span<const uint32_t> between;  // two texts that are encoded together; empty: not known
  bool second_type = false;           // the second of them and the suffix have the text type 1
  int32_t begin_id = -1;  // the model's BOS if its texts begin with it; first of the prefix

  int32_t unk_id = -1;
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t pad_id = -1;

  bool byte_fallback = false;
  bool fuse_unk = false;
  bool ignore_merges = false;
  std::string_view continuing_prefix;  // BPE, WordPiece: before every part of a word but the first
  std::string_view end_suffix;         // BPE: after the last symbol of a word
  uint32_t max_word_characters = 100;  // WordPiece: a longer word is unknown

  /// Vocabulary size of the tokenizer's model; 0: unknown. Limits every id.
  uint32_t model_vocab = 0;
};

}  // namespace moe
