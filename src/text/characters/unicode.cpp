// SPDX-License-Identifier: MIT
// Asks utf8proc for categories, cases and decompositions, and puts marks into canonical order.
#include "src/text/characters/unicode.h"

#include <utf8proc.h>

#include "src/text/characters/utf8.h"

namespace moe {
namespace {

utf8proc_category_t category(uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

uint8_t combining_class(int32_t code) {
  return static_cast<uint8_t>(utf8proc_get_property(code)->combining_class);
}

constexpr size_t kChunk = 1024;  // characters collected before writing

// Puts marks into canonical order: by combining class, stable, within each run of non-starters.
Status order_marks(Array<int32_t>& codes, Array<int32_t>& sorted) {
  for (size_t i = 0; i < codes.size();) {
    if (combining_class(codes[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    size_t count[257] = {};
    for (size_t j = i; j < end; ++j) ++count[combining_class(codes[j]) + 1];
    for (size_t c = 1; c < 257; ++c) count[c] += count[c - 1];
    MOE_TRY(sorted.resize(std::max(sorted.size(), end - i)));
    for (size_t j = i; j < end; ++j) sorted[count[combining_class(codes[j])]++] = codes[j];
    std::copy(sorted.begin(), sorted.begin() + (end - i), codes.begin() + i);
    i = end;
  }
  return {};
}

struct Normaliser {
  Array<int32_t> codes;
  Array<int32_t> sorted;
  utf8proc_option_t options;

  Status add(uint32_t code) {
    int32_t parts[32];  // the longest decomposition has 18
    int boundary = 0;
    const auto n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 32, options, &boundary);
    if (n < 0 || n > 32) {
      return Status::error(MOE_ERR_TEXT, "text: U+%04X cannot be normalised", code);
    }
    return codes.append(parts, static_cast<size_t>(n));
  }
  Status flush(Array<char>& out) {
    MOE_TRY(order_marks(codes, sorted));
    size_t n = codes.size();
    if ((options & UTF8PROC_COMPOSE) != 0 && n != 0) {
      n = static_cast<size_t>(
          utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(n), options));
    }
    for (size_t i = 0; i < n; ++i) {
      char bytes[4];
      MOE_TRY(out.append(bytes, utf8_write(static_cast<uint32_t>(codes[i]), bytes)));
    }
    codes.clear();
    return {};
  }
};

}  // namespace

bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_number(uint32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_mark(uint32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool is_word(uint32_t code) {
  const auto c = category(code);
  if ((c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC) {
    return true;  // these categories are consecutive
  }
  // Join_Control, and the symbols that are Other_Alphabetic
  return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

uint32_t lower_case(uint32_t code, uint32_t out[2]) {
  if (code == 0x130) {  // the only character whose lower case is two characters in every language
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  out[0] = static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
  return 1;
}

Status normal_form(NormalForm form, std::string_view text, Array<char>& out) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  // All characters below this one are unchanged by the form and do not compose with a mark.
  const uint32_t first_changed = form == NormalForm::kNfc ? 0x300 : 0x80;
  const uint8_t first_lead = first_changed == 0x300 ? 0xCC : 0x80;
  size_t plain = 0;
  while (plain < text.size() && static_cast<uint8_t>(text[plain]) < first_lead) ++plain;
  if (plain == text.size()) return out.append(text.data(), text.size());

  int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (compat) options |= UTF8PROC_COMPAT;
  Normaliser n{Array<int32_t>(out.allocator()), Array<int32_t>(out.allocator()),
               static_cast<utf8proc_option_t>(options)};
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i);
    if (n.codes.size() >= kChunk && c.code < first_changed) MOE_TRY(n.flush(out));
    MOE_TRY(n.add(c.code));
    i += c.length;
  }
  return n.flush(out);
}

}  // namespace moe
