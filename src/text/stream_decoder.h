#pragma once
// Token ids to text as they come, in whole characters.

#include "src/text/tokenizer.h"

namespace moe {

/// The texts that push() and finish() append are together exactly what Tokenizer::decode() gives
/// for all the ids. Byte tokens that form no character become one U+FFFD each, other bytes that
/// form none one for each maximal part of a sequence. One thread; the tokenizer must outlive it. No
/// allocation once its buffers have grown.
class StreamDecoder final {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special, const Allocator& allocator);

  /// Appends what is now known to be text. MOE_ERR_RANGE for an id the model does not have.
  Status push(int32_t id, String& text);
  /// Appends what was held back, and starts anew.
  Status finish(String& text);
  /// Forgets everything, for the next text.
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
  bool at_start_ = true;   // a final strip may still take from the start
  size_t n_stripped_ = 0;  // and how many characters it took
  size_t n_held_ = 0;      // characters that it may take from the end
  char fallback_[4] = {};  // byte tokens that may become a character
  size_t n_fallback_ = 0;
  char tail_[4] = {};  // the start of a character, at the end of the text so far
  size_t n_tail_ = 0;
  String scratch_[4];  // two before byte_fallback, two after it
};

}  // namespace moe
