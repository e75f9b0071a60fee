// SPDX-License-Identifier: MIT
// Checks the double array, walks it from each position of a text, and replaces whole graphemes
// first.
#include "src/text/steps/charsmap.h"

#include <utf8proc.h>

#include "src/text/characters/utf8.h"
#include "src/text/steps/text_step.h"

namespace moe {
namespace {

constexpr size_t kLongestGrapheme = 5;  // bytes; longer ones are split
constexpr size_t kLongestReplacement = 255;

size_t grapheme_length(std::string_view text) {
  Utf8Char c = utf8_next(text.data());
  size_t n = c.length;
  utf8proc_int32_t state = 0;
  while (n < text.size()) {
    const Utf8Char next = utf8_next(text.data() + n);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    n += next.length;
    c = next;
  }
  return n;
}

}  // namespace

Status Charsmap::create(std::span<const uint8_t> data) {
  uint32_t n_bytes = 0;
  if (data.size() >= 4) std::memcpy(&n_bytes, data.data(), 4);
  if (data.size() < 4 || n_bytes == 0 || n_bytes % 4 != 0 || n_bytes > data.size() - 4) {
    return Status::error(MOE_ERR_FORMAT, "charsmap: %zu bytes that hold no table", data.size());
  }
  units_ = data.data() + 4;
  n_units_ = n_bytes / 4;
  replacements_ = {reinterpret_cast<const char*>(units_) + n_bytes, data.size() - 4 - n_bytes};
  if (!utf8_is_valid(replacements_)) {
    return Status::error(MOE_ERR_FORMAT, "charsmap: replacements that are not UTF-8");
  }
  return {};
}

bool Charsmap::transform(std::string_view text, std::string_view* replacement) const {
  const auto offset = [](uint32_t u) { return size_t{(u >> 10) << ((u & (1U << 9)) >> 6)}; };
  size_t node = offset(unit(0));
  for (const char byte : text) {
    const auto label = static_cast<uint8_t>(byte);
    if (label == 0) return false;
    node ^= label;
    if (node >= n_units_) return false;
    const uint32_t u = unit(node);
    if ((u & ((1U << 31) | 0xFF)) != label) return false;
    node ^= offset(u);
    if (node >= n_units_) return false;
    if (((u >> 8) & 1) == 0) continue;
    const size_t begin = unit(node) & ((1U << 31) - 1);
    const std::string_view rest = slice(replacements_, begin, kLongestReplacement + 1);
    const size_t n = std::min(rest.find('\0'), rest.size());
    *replacement = slice(rest, 0, n);
    // Too long, or an offset inside a character: the table is damaged.
    return n <= kLongestReplacement && utf8_is_valid(*replacement);
  }
  return false;
}

Status Charsmap::normalise(std::string_view text, Array<char>& out) const {
  while (!text.empty()) {
    const std::string_view grapheme = slice(text, 0, grapheme_length(text));
    text.remove_prefix(grapheme.size());
    std::string_view replacement;
    if (grapheme.size() <= kLongestGrapheme && transform(grapheme, &replacement)) {
      MOE_TRY(append(out, replacement));
      continue;
    }
    for (size_t i = 0; i < grapheme.size();) {
      const std::string_view part = slice(grapheme, i, utf8_next(grapheme.data() + i).length);
      i += part.size();
      MOE_TRY(append(out, transform(part, &replacement) ? replacement : part));
    }
  }
  return {};
}

}  // namespace moe
