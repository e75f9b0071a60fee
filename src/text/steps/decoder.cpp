// SPDX-License-Identifier: MIT
// Applies the decoding steps to one token at a time: byte-level characters, byte fallback,
// replacements, stripping.
#include "src/text/steps/decoder.h"

#include "src/base/number.h"
#include "src/text/characters/byte_level.h"
#include "src/text/characters/utf8.h"
#include "src/text/steps/wordpiece_decoder.h"

namespace moe {
namespace {

constexpr uint32_t kMaxStrip = 64;

Status create_step(const TextStepSpec& spec, DecoderStep* step) {
  static constexpr std::pair<std::string_view, DecoderStep::Kind> kKinds[] = {
      {"replace", DecoderStep::kReplace},     {"strip", DecoderStep::kStrip},
      {"metaspace", DecoderStep::kMetaspace}, {"byte_fallback", DecoderStep::kByteFallback},
      {"fuse", DecoderStep::kFuse},           {"byte_level", DecoderStep::kByteLevel},
      {"wordpiece", DecoderStep::kWordPiece}};
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const auto& k) { return k.first == spec.kind; });
  if (found == std::end(kKinds)) {
    return Status::error(MOE_ERR_UNSUPPORTED, "unknown kind of decoder");
  }
  MOE_TRY(check_content(spec));
  step->kind = found->second;
  step->pattern = spec.content;
  step->start = spec.start;
  step->stop = spec.stop;
  step->drop_first = spec.kind == "metaspace" && spec.scheme != "never";
  step->clean_up = spec.flag;
  if (step->kind == DecoderStep::kReplace) {
    if (spec.regex) return Status::error(MOE_ERR_UNSUPPORTED, "a pattern that is not plain text");
    if (spec.pattern.empty() || spec.pattern.size() > kMaxContentBytes ||
        !utf8_is_valid(spec.pattern)) {
      return Status::error(MOE_ERR_FORMAT, "pattern: expected 1 to %zu bytes of UTF-8",
                           kMaxContentBytes);
    }
    step->pattern = spec.pattern;
    step->content = spec.content;
  }
  const bool one = step->kind == DecoderStep::kStrip || step->kind == DecoderStep::kMetaspace;
  if (one && (!is_one_character(spec.content) || spec.start > kMaxStrip || spec.stop > kMaxStrip)) {
    return Status::error(MOE_ERR_FORMAT, "expected one character, and counts up to %u", kMaxStrip);
  }
  if (step->kind == DecoderStep::kMetaspace) step->content = " ";
  return {};
}

std::string_view strip_token(std::string_view token, const DecoderStep& step) {
  const std::string_view c = step.pattern;
  for (uint32_t i = 0; i < step.start && slice(token, 0, c.size()) == c; ++i) {
    token.remove_prefix(c.size());
  }
  for (uint32_t i = 0; i < step.stop && token.size() >= c.size(); ++i) {
    if (slice(token, token.size() - c.size()) != c) break;
    token.remove_suffix(c.size());
  }
  return token;
}

// A token's bytes if all its characters are in the byte-level alphabet; otherwise the token itself.
Status from_byte_level(std::string_view token, String& out) {
  for (size_t i = 0; i < token.size();) {
    const Utf8Char c = utf8_next(token.data() + i);
    const int value = character_to_byte(c.code);
    if (value < 0) return out.assign(token);
    const char byte = static_cast<char>(value);
    MOE_TRY(out.append({&byte, 1}));
    i += c.length;
  }
  return {};
}

Status replace(std::string_view token, std::string_view what, std::string_view with, String& out) {
  for (size_t i = 0; i < token.size();) {
    const size_t at = std::min(token.find(what, i), token.size());
    MOE_TRY(out.append(slice(token, i, at - i)));
    if (at == token.size()) break;
    MOE_TRY(out.append(with));
    i = at + what.size();
  }
  return {};
}

}  // namespace

Status TokenDecoder::create(std::span<const TextStepSpec> specs) {
  if (specs.size() > kMaxSteps) {
    return Status::error(MOE_ERR_FORMAT, "decoder: %zu steps, at most %zu", specs.size(),
                         kMaxSteps);
  }
  MOE_TRY(steps_.resize(specs.size()));
  bool fallback = false;
  bool fused = false;
  for (size_t i = 0; i < specs.size(); ++i) {
    DecoderStep& step = steps_[i];
    Status s = create_step(specs[i], &step);
    // The whole text is never in memory: once tokens are joined, only its ends can change.
    const bool final = fused && step.kind == DecoderStep::kStrip && step.pattern.size() == 1 &&
                       i + 1 == specs.size();
    const bool misplaced = fused ? !final && step.kind != DecoderStep::kFuse
                                 : fallback && step.kind == DecoderStep::kByteFallback;
    if (s.ok() && misplaced) s = Status::error(MOE_ERR_UNSUPPORTED, "not at place %zu", i);
    if (!s.ok()) {
      return s.with_context("decoder %.*s",
                            static_cast<int>(std::min<size_t>(specs[i].kind.size(), 40)),
                            specs[i].kind.data());
    }
    has_final_strip_ = final;
    fallback = fallback || step.kind == DecoderStep::kByteFallback;
    fused = fused || step.kind == DecoderStep::kFuse || step.kind == DecoderStep::kByteLevel;
  }
  return {};
}

Status decode_step(const DecoderStep& step, bool first, String& out, std::string_view* token) {
  switch (step.kind) {
    case DecoderStep::kByteFallback:
    case DecoderStep::kFuse:
      return {};
    case DecoderStep::kStrip:
      *token = strip_token(*token, step);
      return {};
    case DecoderStep::kByteLevel:
      out.clear();
      MOE_TRY(from_byte_level(*token, out));
      break;
    case DecoderStep::kWordPiece:
      MOE_TRY(decode_wordpiece(*token, step.pattern, first, step.clean_up, out));
      break;
    case DecoderStep::kReplace:
    case DecoderStep::kMetaspace:
      out.clear();
      MOE_TRY(replace(*token, step.pattern, first && step.drop_first ? "" : step.content, out));
      break;
  }
  *token = out.view();
  return {};
}

int fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || slice(piece, 0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (size_t i = 3; i < 5; ++i) {
    const int digit = hex_value(piece[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace moe
