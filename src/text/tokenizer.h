// SPDX-License-Identifier: MIT
#pragma once
// Converts text to token ids and back, with the ids of Hugging Face's `tokenizers`.

#include <string_view>

#include "src/base/string.h"
#include "src/text/spec.h"

namespace moe {

struct TokenizerParts;

/// The result of encode_pair() beside the ids.
struct TokenPair {
  size_t second = 0;  // where the text type 1 begins, from the first id on; 0: nowhere
  size_t n_cut = 0;   // ids of both texts that were left out
};

/// Immutable after create(): any number of threads may call const methods.
///
/// Invalid UTF-8 is first replaced by U+FFFD (one per maximal part of a sequence, like Python's
/// errors="replace"), except for the kind "bytes", which takes bytes unchanged.
class Tokenizer final {
 public:
  /// Checks all of `spec` and builds the tables. MOE_ERR_FORMAT names the error,
  /// MOE_ERR_UNSUPPORTED a kind that this build lacks. spec's memory must outlive the tokenizer.
  static Result<Box<Tokenizer>> create(const TokenizerSpec& spec, const Allocator& allocator);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  /// Ids are 0 .. n_vocab() - 1, some of them possibly unused.
  int n_vocab() const;

  /// Appends the ids of `text`. add_special: adds the ids that surround a text. parse_special:
  /// converts special tokens spelled out in the text to their ids; otherwise text can never produce
  /// them. MOE_ERR_TEXT if a pattern exceeds its limits or a character has no token; `ids` is then
  /// unchanged.
  Status encode(std::string_view text, bool add_special, bool parse_special,
                Array<int32_t>& ids) const;

  /// True if the model file says how two texts are encoded together.
  bool knows_pairs() const;
  /// Appends the ids of two texts with those before, between and after them. Of more than
  /// `max_tokens` (0: any number) the ends are cut off, those of the longer text first.
  /// MOE_ERR_UNSUPPORTED without knows_pairs(), MOE_ERR_TOO_LONG if nothing would be left of a
  /// text that has tokens; otherwise as encode().
  Status encode_pair(std::string_view first, std::string_view second, bool parse_special,
                     size_t max_tokens, Array<int32_t>& ids, TokenPair* pair) const;

  /// Appends the ids of a text in which only unmarked bytes may spell special tokens, without the
  /// ids that surround a text. marks: one per byte, not 0 = marked. `text` must be UTF-8.
  Status encode_marked(std::string_view text, std::span<const uint8_t> marks,
                       Array<int32_t>& ids) const;

  /// Appends the text of `ids`, always UTF-8 (invalid bytes become U+FFFD). skip_special omits
  /// special tokens. MOE_ERR_RANGE for an id outside the model.
  Status decode(std::span<const int32_t> ids, bool skip_special, String& text) const;

  /// Appends the bytes of one token, independent of its neighbours; may be part of a character.
  Status token_bytes(int32_t id, String& bytes) const;

  /// The vocabulary's spelling ("Ġthe"), zero-terminated; empty for an id without a token.
  std::string_view piece(int32_t id) const;
  /// The id of a piece, or -1.
  int32_t token_id(std::string_view piece) const;
  bool is_special(int32_t id) const;

  std::span<const int32_t> prefix() const;  // ids before a text

  int32_t bos_id() const;  // -1: none
  int32_t eos_id() const;
  int32_t unk_id() const;
  int32_t pad_id() const;

  const TokenizerParts& parts() const { return *parts_; }

  /// For create() alone.
  explicit Tokenizer(Box<TokenizerParts> parts);

 private:
  Box<TokenizerParts> parts_;
};

}  // namespace moe
