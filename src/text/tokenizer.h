#pragma once
// Text to token ids and back, with the ids of Hugging Face's `tokenizers`.

#include <string_view>

#include "src/base/string.h"
#include "src/text/spec.h"

namespace moe {

struct TokenizerParts;

/// Immutable once made: every const method may be called from any number of threads.
///
/// Bytes that are not UTF-8 are replaced by U+FFFD before anything else (one for each maximal part
/// of a sequence, as Python's errors="replace" does), except for the kind "bytes", which takes
/// bytes as they are.
class Tokenizer final {
 public:
  /// Checks all of `spec` and builds the tables. MOE_ERR_FORMAT names what is wrong,
  /// MOE_ERR_UNSUPPORTED a kind that this build does not have. spec's memory must stay.
  static Result<Box<Tokenizer>> create(const TokenizerSpec& spec, const Allocator& allocator);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  /// Ids are 0 .. n_vocab() - 1, some of them possibly unused.
  int n_vocab() const;

  /// Appends the ids of `text`. add_special: with the ids that the tokenizer puts around a text.
  /// parse_special: special tokens spelled out in the text become their id; without it a text
  /// cannot forge them. MOE_ERR_TEXT when a pattern of the tokenizer exceeds its limits or a
  /// character has no token; `ids` is then as it was.
  Status encode(std::string_view text, bool add_special, bool parse_special,
                Array<int32_t>& ids) const;

  /// Appends the ids of a text of which only the unmarked bytes may spell special tokens, without
  /// the ids around a text. marks: one for each byte, not 0 = marked. `text` must be UTF-8.
  Status encode_marked(std::string_view text, std::span<const uint8_t> marks,
                       Array<int32_t>& ids) const;

  /// Appends the text of `ids`, always UTF-8 (bytes that form no character become U+FFFD).
  /// skip_special leaves special tokens out. MOE_ERR_RANGE for an id the model does not have.
  Status decode(std::span<const int32_t> ids, bool skip_special, String& text) const;

  /// Appends the bytes that one token stands for, whatever its neighbours; may be part of a
  /// character.
  Status token_bytes(int32_t id, String& bytes) const;

  /// The vocabulary's spelling ("Ġthe"), followed by a zero byte; empty for an id without a token.
  std::string_view piece(int32_t id) const;
  /// The id of a piece, or -1.
  int32_t token_id(std::string_view piece) const;
  bool is_special(int32_t id) const;

  std::span<const int32_t> prefix() const;  // ids that encode() puts before a text

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
