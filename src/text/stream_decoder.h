#pragma once
// Token ids to text as they come, in whole characters.

#include "src/text/tokenizer.h"

namespace moe {

/// The texts that push() and finish() append are together exactly what Tokenizer::decode() gives for
/// all the ids. One thread; the tokenizer must outlive it. No allocation once its buffers have grown.
class StreamDecoder final {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special, const Allocator& allocator);

  /// Appends what is now known to be text. MOE_ERR_RANGE for an id the model does not have.
  Status push(int32_t id, String& text);
  /// Appends what was held back: the start of a character whose end never came is U+FFFD.
  Status finish(String& text);
  /// Forgets everything, for the next text.
  void reset();

 private:
  Status run(size_t step, std::string_view token, String& text);
  Status run_byte(size_t step, uint8_t byte, String& text);
  Status flush_bytes(size_t step, String& text);
  Status emit(std::string_view bytes, String& text);
  Status emit_utf8(std::string_view bytes, String& text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;          // no token yet
  size_t n_stripped_ = 0;      // characters that a final strip took from the start
  bool at_start_ = true;       // and whether it still may
  size_t n_held_ = 0;          // characters that a final strip may take from the end
  uint8_t fallback_[4] = {};   // bytes of byte tokens that may become a character
  size_t n_fallback_ = 0;
  uint8_t tail_[4] = {};       // the start of a character, at the end of the text so far
  size_t n_tail_ = 0;
  String scratch_[2];
};

}  // namespace moe
