// SPDX-License-Identifier: MIT
#pragma once
// Decodes token ids incrementally, in whole characters.

#include "src/text/tokenizer.h"

namespace moe {

/// push() and finish() together append exactly the text that Tokenizer::decode() gives for all the
/// ids. Byte tokens that do not form a character become one U+FFFD each, other invalid bytes one
/// per maximal part of a sequence. One thread; the tokenizer must outlive it. No allocation once
/// its buffers have grown.
class StreamDecoder final {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special, const Allocator& allocator);

  /// Appends the text that is complete. MOE_ERR_RANGE for an id outside the model.
  Status push(int32_t id, String& text);
  /// Appends the withheld text and restarts.
  Status finish(String& text);
  /// Whether a space at the beginning of the next token would not be part of the text.
  bool drops_space() const;
  /// Resets for the next text.
  void reset();

 private:
  Status run(size_t step, std::string_view token, String& text);
  Status add_byte(size_t step, uint8_t byte, String& text);
  Status flush_bytes(size_t step, String& text);
  Status strip_ends(std::string_view bytes, String& text);
  Status emit(std::string_view bytes, String& text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;      // no token yet
  bool at_start_ = true;   // a final strip may still strip the start
  size_t n_stripped_ = 0;  // characters stripped so far
  size_t n_held_ = 0;      // characters that may be stripped at the end
  char fallback_[4] = {};  // byte tokens that may form a character
  size_t n_fallback_ = 0;
  char tail_[4] = {};  // an incomplete character at the end of the text
  size_t n_tail_ = 0;
  String scratch_[4];  // two for steps before byte_fallback, two after it
};

}  // namespace moe
