// SPDX-License-Identifier: MIT
// Formats messages into a status's own buffer, and replaces bytes in them that no terminal should
// get.
#include "src/base/status.h"

#include <algorithm>
#include <cstring>

#include "src/base/format.h"

namespace moe {
namespace {

// Drops a UTF-8 sequence truncated by the end of the buffer.
void trim_partial_utf8(char* text) {
  size_t n = std::strlen(text);
  size_t back = 0;
  while (back < n && back < 3 && (static_cast<unsigned char>(text[n - 1 - back]) & 0xC0) == 0x80) {
    ++back;
  }
  if (back == n) return;
  const unsigned char lead = static_cast<unsigned char>(text[n - 1 - back]);
  const size_t need = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  if (lead >= 0xC0 && need != back) text[n - 1 - back] = '\0';
}

// Length of the UTF-8 character at `p`; 0 if invalid (RFC 3629, table 3-7 of Unicode).
size_t character_bytes(const unsigned char* p) {
  if (p[0] < 0x80) return 1;
  if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
  const size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
  for (size_t i = 1; i < n; ++i) {
    if ((p[i] & 0xC0) != 0x80) return 0;
  }
  const bool too_long = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xF0 && p[1] < 0x90);
  const bool outside = (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF4 && p[1] > 0x8F);
  return too_long || outside ? 0 : n;
}

// Messages quote callers and files, which may contain invalid or truncated UTF-8, line ends or
// terminal codes: each such byte becomes '?'.
void make_printable(char* text) {
  for (auto* p = reinterpret_cast<unsigned char*>(text); *p != 0;) {
    const size_t n = *p < 0x20 || *p == 0x7F ? 0 : character_bytes(p);
    if (n == 0) *p = '?';
    p += n == 0 ? 1 : n;
  }
}

}  // namespace

void Status::copy(const Status& other) {
  code_ = other.code_;
  std::memcpy(text_, other.text_,
              ok() ? 1 : std::strlen(other.text_) + 1);  // mostly without a text
}

Status Status::verror(moe_status code, const char* format, va_list args) {
  Status s;
  s.code_ = code;
  const int n = vformat(s.text_, sizeof s.text_, format, args);
  if (n < 0) s.text_[0] = '\0';
  if (n >= static_cast<int>(sizeof s.text_)) trim_partial_utf8(s.text_);
  make_printable(s.text_);
  return s;
}

Status Status::error(moe_status code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  Status s = verror(code, format, args);
  va_end(args);
  return s;
}

Status Status::with_context(const char* format, ...) const {
  if (ok()) return {};
  char prefix[MOE_ERROR_TEXT_BYTES];
  va_list args;
  va_start(args, format);
  if (vformat(prefix, sizeof prefix, format, args) < 0) prefix[0] = '\0';
  va_end(args);
  // The message's end says what is wrong: shorten a long path at its beginning.
  constexpr size_t kRoom = sizeof text_ - sizeof ": ";
  constexpr size_t kShortest = 40;  // shortest useful part of a path
  const size_t length = std::strlen(prefix);
  const size_t left = kRoom - std::min(kRoom, std::strlen(text_));
  if (length <= left || left < kShortest) return error(code_, "%s: %s", prefix, text_);
  const char* tail = prefix + length - (left - 3);
  while ((*tail & 0xc0) == 0x80) ++tail;
  return error(code_, "...%s: %s", tail, text_);
}

}  // namespace moe
