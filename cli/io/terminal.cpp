// SPDX-License-Identifier: MIT
// Spells out control characters, and puts a filter in front of stdout and stderr if they are
// terminals.
#include "cli/io/terminal.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <new>
#include <sstream>
#include <streambuf>

namespace moe_cli {
namespace {

bool is_control(uint32_t c, bool keep_lines) {
  if (c < 0x20) return !keep_lines || (c != '\n' && c != '\t');
  return (c >= 0x7F && c < 0xA0) ||                          // DEL, C1
         c == 0x061C || c == 0x200E || c == 0x200F ||        // direction marks
         (c >= 0x2028 && c <= 0x202E) ||                     // line ends, embeddings, overrides
         (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF ||      // isolates, BOM
         (c >= 0xFFF9 && c <= 0xFFFB) || (c >> 16) == 0x0E;  // annotations, tags
}

// Forwards text by character, waiting for the end of incomplete ones. Allocates nothing: it must
// work when memory is exhausted.
class VisibleBuffer : public std::streambuf {
 public:
  VisibleBuffer() = default;
  VisibleBuffer(std::streambuf& to, bool keep_lines) : to_(&to), keep_lines_(keep_lines) {}

  void guard(std::ostream& stream, int file) {
    if (to_ != nullptr || isatty(file) != 1) return;
    to_ = stream.rdbuf(this);
  }

 protected:
  int overflow(int c) override {
    if (c == traits_type::eof()) return 0;
    return take(static_cast<unsigned char>(c)) ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* text, std::streamsize n) override {
    for (std::streamsize i = 0; i < n; ++i) {
      if (!take(static_cast<unsigned char>(text[i]))) return i;
    }
    return n;
  }
  int sync() override { return to_->pubsync(); }

 private:
  bool take(unsigned char byte) {
    const bool follows = (byte & 0xC0) == 0x80;
    if (need_ > 0 && !follows) {
      need_ = 0;
      if (!replace()) return false;
    }
    if (need_ == 0) {
      if (follows || byte >= 0xF8) return replace();
      need_ = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
      code_ = need_ == 1 ? byte : byte & (0xFFu >> (need_ + 1));
      size_ = 0;
    } else {
      code_ = code_ << 6 | (byte & 0x3Fu);
    }
    bytes_[size_++] = static_cast<char>(byte);
    if (--need_ > 0) return true;
    return put_character();
  }

  bool put_character() {
    static const uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate = code_ >= 0xD800 && code_ < 0xE000;
    if (code_ < kLeast[size_] || surrogate || code_ > 0x10FFFF) return replace();
    if (!is_control(code_, keep_lines_)) return to_->sputn(bytes_, size_) == size_;
    char text[16];
    const char* format = code_ < 0x100 ? "\\x%02x" : code_ < 0x10000 ? "\\u%04x" : "\\U%08x";
    const int n = std::snprintf(text, sizeof text, format, static_cast<unsigned>(code_));
    return to_->sputn(text, n) == n;
  }

  bool replace() { return to_->sputn("\xEF\xBF\xBD", 3) == 3; }

  std::streambuf* to_ = nullptr;
  bool keep_lines_ = true;
  int need_ = 0;  // missing bytes of the character
  int size_ = 0;
  uint32_t code_ = 0;
  char bytes_[4] = {};
};

std::string spelled_out(const std::string& text, bool keep_lines) {
  std::stringbuf out;
  VisibleBuffer(out, keep_lines).sputn(text.data(), static_cast<std::streamsize>(text.size()));
  return out.str();
}

}  // namespace

void guard_terminals() {
  // These outlive main(): the streams are flushed after it.
  alignas(VisibleBuffer) static char memory[2][sizeof(VisibleBuffer)];
  static VisibleBuffer* const out = new (memory[0]) VisibleBuffer;
  static VisibleBuffer* const err = new (memory[1]) VisibleBuffer;
  out->guard(std::cout, STDOUT_FILENO);
  err->guard(std::cerr, STDERR_FILENO);
}

std::string visible(const std::string& text) {
  return isatty(STDERR_FILENO) == 1 ? spelled_out(text, true) : text;
}

std::string one_line(const std::string& text) {
  return isatty(STDOUT_FILENO) == 1 ? spelled_out(text, false) : text;
}

}  // namespace moe_cli
