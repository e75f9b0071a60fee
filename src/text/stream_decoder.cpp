// SPDX-License-Identifier: MIT
// Runs tokens through the decoding steps and withholds bytes until a character is complete.
#include "src/text/stream_decoder.h"

#include "src/text/characters/utf8.h"
#include "src/text/parts.h"
#include "src/text/steps/text_step.h"

namespace moe {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special,
                             const Allocator& allocator)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special),
      scratch_{String(allocator), String(allocator), String(allocator), String(allocator)} {}

void StreamDecoder::reset() {
  first_ = true;
  at_start_ = true;
  n_stripped_ = n_held_ = n_fallback_ = n_tail_ = 0;
}

bool StreamDecoder::drops_space() const {
  const TokenDecoder& decoder = tokenizer_->parts().decoder;
  const DecoderStep* strip = decoder.final_strip();
  if (strip != nullptr && at_start_ && n_stripped_ < strip->start && strip->pattern == " ") {
    return true;
  }
  const std::span<const DecoderStep> steps = decoder.steps();
  return first_ &&
         std::any_of(steps.begin(), steps.end(), [](const DecoderStep& s) { return s.drop_first; });
}

Status StreamDecoder::push(int32_t id, String& text) {
  const TokenizerParts& parts = tokenizer_->parts();
  if (id < 0 || id >= parts.n_ids) {
    return Status::error(MOE_ERR_RANGE, "token %d: expected 0 to %d", id, parts.n_ids - 1);
  }
  if (id >= tokenizer_->n_vocab()) return {};
  const std::string_view piece = parts.decoded_piece(static_cast<uint32_t>(id));
  if (piece.empty() || (skip_special_ && tokenizer_->is_special(id))) return {};
  if (parts.decoder.empty() && !first_) MOE_TRY(emit(" ", text));
  MOE_TRY(run(0, piece, text));
  first_ = false;
  return {};
}

Status StreamDecoder::finish(String& text) {
  const std::span<const DecoderStep> steps = tokenizer_->parts().decoder.steps();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind == DecoderStep::kByteFallback) MOE_TRY(flush_bytes(i + 1, text));
  }
  if (n_tail_ != 0) MOE_TRY(text.append(kReplacement));
  reset();
  return {};
}

// Passes a token to the steps from `step` on.
Status StreamDecoder::run(size_t step, std::string_view token, String& text) {
  const std::span<const DecoderStep> steps = tokenizer_->parts().decoder.steps();
  const size_t n_at_first = token.size();
  size_t buffer = step == 0 ? 0 : 2;
  for (size_t i = step; i < steps.size(); ++i) {
    if (steps[i].kind == DecoderStep::kByteFallback) {
      const int byte = fallback_byte(token);
      if (byte >= 0) return add_byte(i + 1, static_cast<uint8_t>(byte), text);
      MOE_TRY(flush_bytes(i + 1, text));
      buffer = 2;
      continue;
    }
    MOE_TRY(decode_step(steps[i], first_, scratch_[buffer], &token));
    MOE_TRY(check_growth(token.size(), n_at_first));
    if (token.data() == scratch_[buffer].c_str()) buffer ^= 1;
  }
  return strip_ends(token, text);
}

// Adds one byte token; passes whole characters to the steps from `step` on.
Status StreamDecoder::add_byte(size_t step, uint8_t byte, String& text) {
  fallback_[n_fallback_++] = static_cast<char>(byte);
  Utf8Char c = utf8_read(fallback_, n_fallback_);
  if (c.kind == Utf8Char::kInvalid &&
      n_fallback_ > 1) {  // the new byte may begin another character
    --n_fallback_;
    MOE_TRY(flush_bytes(step, text));
    fallback_[n_fallback_++] = static_cast<char>(byte);
    c = utf8_read(fallback_, 1);
  }
  if (c.kind == Utf8Char::kInvalid) return flush_bytes(step, text);
  if (c.kind == Utf8Char::kPartial) return {};
  const char character[4] = {fallback_[0], fallback_[1], fallback_[2], fallback_[3]};
  n_fallback_ = 0;
  return run(step, {character, c.length}, text);
}

Status StreamDecoder::flush_bytes(size_t step, String& text) {
  for (; n_fallback_ > 0; --n_fallback_) MOE_TRY(run(step, kReplacement, text));
  return {};
}

// Strips characters from the two ends of the text.
Status StreamDecoder::strip_ends(std::string_view bytes, String& text) {
  const DecoderStep* strip = tokenizer_->parts().decoder.final_strip();
  if (strip == nullptr) return emit(bytes, text);
  const char c = strip->pattern[0];
  while (at_start_ && !bytes.empty()) {
    at_start_ = bytes[0] == c && n_stripped_ < strip->start;
    if (!at_start_) break;
    ++n_stripped_;
    bytes.remove_prefix(1);
  }
  size_t n_last = 0;
  while (n_last < bytes.size() && bytes[bytes.size() - 1 - n_last] == c) ++n_last;
  if (n_last < bytes.size()) {
    for (; n_held_ > 0; --n_held_) MOE_TRY(emit(strip->pattern, text));
    MOE_TRY(emit(slice(bytes, 0, bytes.size() - n_last), text));
  }
  for (; n_last > 0; --n_last) {
    if (n_held_ < strip->stop) {
      ++n_held_;
    } else {
      MOE_TRY(emit(strip->pattern, text));
    }
  }
  return {};
}

// Appends whole characters and retains the start of one.
Status StreamDecoder::emit(std::string_view bytes, String& text) {
  while (!bytes.empty()) {
    if (n_tail_ == 0) {
      const size_t valid = utf8_valid_prefix(bytes);
      if (valid != 0) MOE_TRY(text.append(slice(bytes, 0, valid)));
      bytes.remove_prefix(valid);
      if (bytes.empty()) return {};
    }
    tail_[n_tail_++] = bytes[0];
    const Utf8Char c = utf8_read(tail_, n_tail_);
    if (c.kind == Utf8Char::kInvalid) {
      MOE_TRY(text.append(kReplacement));
      if (n_tail_ == 1) bytes.remove_prefix(1);  // otherwise this byte may begin another character
      n_tail_ = 0;
      continue;
    }
    bytes.remove_prefix(1);
    if (c.kind == Utf8Char::kPartial) continue;
    MOE_TRY(text.append({tail_, n_tail_}));
    n_tail_ = 0;
  }
  return {};
}

}  // namespace moe
