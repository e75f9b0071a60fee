#pragma once
// The steps from pieces back to text.

#include "src/base/string.h"
#include "src/text/spec.h"

namespace moe {

struct DecoderStep {
  enum Kind { kReplace, kStrip, kMetaspace, kByteFallback, kFuse, kByteLevel };
  Kind kind = kFuse;
  uint32_t start = 0;  // strip: how many at most
  uint32_t stop = 0;
  bool drop_first = false;   // metaspace: the first token's marks stand for nothing
  std::string_view pattern;  // what is replaced or stripped
  std::string_view content;  // what to put instead
};

/// A checked list of steps. StreamDecoder runs it. Immutable after create().
class TokenDecoder final {
 public:
  explicit TokenDecoder(const Allocator& allocator) : steps_(allocator) {}

  /// MOE_ERR_UNSUPPORTED for a step that is unknown or stands where it cannot be run token by
  /// token.
  Status create(std::span<const TextStepSpec> steps);
  /// Pieces are the bytes of the text.
  Status create_for_bytes() { return steps_.push(DecoderStep()); }

  /// All steps but final_strip().
  std::span<const DecoderStep> steps() const {
    return {steps_.data(), steps_.size() - (has_final_strip_ ? 1 : 0)};
  }
  /// The strip that works on the whole text, after the tokens have become one; or nullptr.
  const DecoderStep* final_strip() const { return has_final_strip_ ? &steps_.back() : nullptr; }
  /// No step at all: tokens are joined with spaces.
  bool empty() const { return steps_.empty(); }

 private:
  Array<DecoderStep> steps_;
  bool has_final_strip_ = false;
};

/// One step on one token. *token becomes its result, which may lie in `out` (which it does not
/// view). `first`: it is the first token of the text. byte_fallback and fuse do nothing here.
Status decode_step(const DecoderStep& step, bool first, String& out, std::string_view* token);

/// The byte of a piece like <0x0A>, or -1.
int fallback_byte(std::string_view piece);

}  // namespace moe
