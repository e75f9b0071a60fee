// SPDX-License-Identifier: MIT
// Removes control characters, puts spaces around ideographs, and strips accents, by Unicode 8.
#include "src/text/steps/bert_normalizer.h"

#include "src/text/characters/unicode.h"
#include "src/text/characters/unicode8.h"
#include "src/text/characters/utf8.h"
#include "src/text/steps/text_step.h"

namespace moe {
namespace {

// The blocks that Bert's own code names; later blocks of ideographs are words to it.
bool is_ideograph(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_removed(uint32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0xFFFD || is_other(c);
}

}  // namespace

Status clean_text(std::string_view text, Array<char>& out, bool* at_start) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i);
    const bool removed = is_removed(c.code);
    if (!removed) MOE_TRY(append(out, is_white_space(c.code) ? " " : slice(text, i, c.length)));
    if (removed && i == 0) *at_start = false;
    i += c.length;
  }
  return {};
}

Status space_ideographs(std::string_view text, Array<char>& out) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i);
    const bool ideograph = is_ideograph(c.code);
    if (ideograph) MOE_TRY(append(out, " "));
    MOE_TRY(append(out, slice(text, i, c.length)));
    if (ideograph) MOE_TRY(append(out, " "));
    i += c.length;
  }
  return {};
}

Status strip_nonspacing(std::string_view text, Array<char>& out, bool* at_start) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i);
    const bool removed = is_nonspacing_mark(c.code);
    if (!removed) MOE_TRY(append(out, slice(text, i, c.length)));
    if (removed && i == 0) *at_start = false;
    i += c.length;
  }
  return {};
}

}  // namespace moe
