// SPDX-License-Identifier: MIT
#pragma once
// Decoding steps from pieces to text.

#include "src/base/string.h"
#include "src/text/spec.h"

namespace moe {

struct DecoderStep {
  enum Kind { kReplace, kStrip, kMetaspace, kByteFallback, kFuse, kByteLevel, kWordPiece };
  Kind kind = kFuse;
  uint32_t start = 0;  // strip: maximum count
  uint32_t stop = 0;
  bool drop_first = false;   // metaspace: drops the first token's marks
  bool clean_up = false;     // wordpiece: removes spaces before punctuation
  std::string_view pattern;  // text to replace or strip; wordpiece: the continuing prefix
  std::string_view content;  // replacement
};

/// A checked list of steps. StreamDecoder runs it. Immutable after create().
class TokenDecoder final {
 public:
  explicit TokenDecoder(const Allocator& allocator) : steps_(allocator) {}

  /// MOE_ERR_UNSUPPORTED for an unknown step, or one that cannot run token by token at its place.
  Status create(std::span<const TextStepSpec> steps);
  /// The pieces are bytes of the text.
  Status create_for_bytes() { return steps_.push(DecoderStep()); }

  /// All steps except final_strip().
  std::span<const DecoderStep> steps() const {
    return {steps_.data(), steps_.size() - (has_final_strip_ ? 1 : 0)};
  }
  /// The strip of the whole text, after tokens are joined; or nullptr.
  const DecoderStep* final_strip() const { return has_final_strip_ ? &steps_.back() : nullptr; }
  /// No steps: tokens are joined by spaces.
  bool empty() const { return steps_.empty(); }

 private:
  Array<DecoderStep> steps_;
  bool has_final_strip_ = false;
};

/// Applies one step to one token. *token becomes the result, which may be in `out`; on entry it
/// must not view `out`. `first`: the first token of the text. byte_fallback and fuse do nothing
/// here.
Status decode_step(const DecoderStep& step, bool first, String& out, std::string_view* token);

/// The byte of a piece like <0x0A>, or -1.
int fallback_byte(std::string_view piece);

}  // namespace moe
