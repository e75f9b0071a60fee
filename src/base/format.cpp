// SPDX-License-Identifier: MIT
// Formats text, as snprintf does, without the C library.
#include "src/base/format.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/base/decimal.h"
#include "src/base/number.h"

namespace moe {
namespace {

constexpr int kMostFraction = 300;

/// The text so far, of which the beginning fits.
class Output {
 public:
  Output(char* text, size_t n_bytes) : text_(text), n_bytes_(n_bytes) {}
  void put(char c) {
    if (length_ + 1 < n_bytes_) text_[length_] = c;
    ++length_;
  }
  void put(const char* text, size_t n) {
    for (size_t i = 0; i < n; ++i) put(text[i]);
  }
  void repeat(char c, int n) {
    for (; n > 0; --n) put(c);
  }
  int finish() {
    if (n_bytes_ != 0) text_[std::min(length_, n_bytes_ - 1)] = '\0';
    return static_cast<int>(length_);
  }

 private:
  char* text_;
  size_t n_bytes_;
  size_t length_ = 0;
};

/// One conversion, between '%' and its letter.
struct Conversion {
  bool zeros = false;
  bool left = false;
  int width = 0;
  int precision = -1;  // none
  int size = 0;        // 'H': char, 'h': short, 'l', 'q': long long, 'z', 'j', 't'
};

/// The arguments, which a function cannot take as a reference everywhere.
struct Arguments {
  va_list list;
};

int read_number(const char** at, Arguments& args) {
  if (**at == '*') {
    ++*at;
    return va_arg(args.list, int);
  }
  int n = 0;
  for (; is_digit(**at); ++*at) n = std::min(10 * n + (**at - '0'), 1'000'000);
  return n;
}

Conversion read_conversion(const char** at, Arguments& args) {
  Conversion c;
  for (; **at == '0' || **at == '-'; ++*at) (**at == '0' ? c.zeros : c.left) = true;
  c.width = read_number(at, args);
  if (c.width < 0) {
    c.left = true;
    c.width = -c.width;
  }
  if (**at == '.') {
    ++*at;
    c.precision = read_number(at, args);
  }
  while (**at != '\0' && std::strchr("hlzjt", **at) != nullptr) {
    const bool twice = c.size == **at;
    c.size = !twice ? **at : c.size == 'h' ? 'H' : 'q';
    ++*at;
  }
  return c;
}

int64_t next_signed(const Conversion& c, Arguments& args) {
  switch (c.size) {
    case 'l':
      return va_arg(args.list, long);
    case 'q':
      return va_arg(args.list, long long);
    case 'j':
      return va_arg(args.list, intmax_t);
    case 'z':
    case 't':
      return va_arg(args.list, ptrdiff_t);
    case 'h':
      return static_cast<short>(va_arg(args.list, int));
    case 'H':
      return static_cast<signed char>(va_arg(args.list, int));
    default:
      return va_arg(args.list, int);
  }
}

uint64_t next_unsigned(const Conversion& c, Arguments& args) {
  switch (c.size) {
    case 'l':
      return va_arg(args.list, unsigned long);
    case 'q':
      return va_arg(args.list, unsigned long long);
    case 'j':
      return va_arg(args.list, uintmax_t);
    case 'z':
    case 't':
      return va_arg(args.list, size_t);
    case 'h':
      return static_cast<unsigned short>(va_arg(args.list, unsigned));
    case 'H':
      return static_cast<unsigned char>(va_arg(args.list, unsigned));
    default:
      return va_arg(args.list, unsigned);
  }
}

// The text of one conversion with its sign or "0x" before it, and what fills its width.
void put_field(Output& out, const Conversion& c, const char* sign, const char* body, int n,
               bool zeros) {
  const int fill = c.width - n - static_cast<int>(std::strlen(sign));
  if (!c.left && !zeros) out.repeat(' ', fill);
  out.put(sign, std::strlen(sign));
  if (!c.left && zeros) out.repeat('0', fill);
  out.put(body, static_cast<size_t>(n));
  if (c.left) out.repeat(' ', fill);
}

void put_whole(Output& out, const Conversion& c, uint64_t value, unsigned base, const char* sign,
               const char* letters) {
  char text[128];
  int n = 0;
  for (; value != 0; value /= base) text[n++] = letters[value % base];
  const int least = std::min<int>(c.precision < 0 ? 1 : c.precision, sizeof text);
  while (n < least) text[n++] = '0';
  std::reverse(text, text + n);
  put_field(out, c, sign, text, n, c.zeros && c.precision < 0);
}

/// The text of a number, without its sign.
struct NumberText {
  char text[Decimal::kMost];
  int n = 0;

  void put(char c) { text[n++] = c; }
  // Digits of which `whole` are before the point.
  void put_digits(const Decimal& d, int first, int whole, int fraction) {
    for (int i = 0; i < std::max(whole, 1); ++i) put(whole < 1 ? '0' : d.digit(first + i));
    if (fraction > 0) put('.');
    for (int i = 0; i < fraction; ++i) put(d.digit(first + whole + i));
  }
  void put_exponent(int exponent) {
    put('e');
    put(exponent < 0 ? '-' : '+');
    const int e = exponent < 0 ? -exponent : exponent;
    if (e >= 100) put(static_cast<char>('0' + e / 100));
    put(static_cast<char>('0' + e / 10 % 10));
    put(static_cast<char>('0' + e % 10));
  }
};

// Without zeros at the end, as %g has them.
int significant(const Decimal& d) {
  int n = d.n;
  while (n > 0 && d.digits[n - 1] == '0') --n;
  return n;
}

void put_real(Output& out, const Conversion& c, char letter, double value) {
  const char* sign = __builtin_signbit(value) ? "-" : "";
  if (!__builtin_isfinite(value)) {
    return put_field(out, c, sign, __builtin_isnan(value) ? "nan" : "inf", 3, false);
  }
  int precision = std::min(c.precision < 0 ? 6 : c.precision, kMostFraction);
  NumberText text;
  Decimal d(value);
  if (letter == 'f') {
    d.round(d.exponent + precision);
    text.put_digits(d, 0, d.exponent, precision);
    return put_field(out, c, sign, text.text, text.n, c.zeros);
  }
  if (letter == 'g') precision = std::max(precision, 1) - 1;
  d.round(precision + 1);
  const int exponent = d.exponent - 1;
  const bool plain = letter == 'g' && exponent >= -4 && exponent <= precision;
  if (letter == 'g') precision = std::max(significant(d), 1) - 1;
  if (plain) {
    text.put_digits(d, 0, d.exponent, std::max(0, precision - exponent));
  } else {
    text.put_digits(d, 0, 1, precision);
    text.put_exponent(exponent);
  }
  put_field(out, c, sign, text.text, text.n, c.zeros);
}

void put_text(Output& out, const Conversion& c, const char* text) {
  if (text == nullptr) text = "(null)";
  size_t n = 0;
  const size_t most = c.precision < 0 ? SIZE_MAX : static_cast<size_t>(c.precision);
  while (n < most && text[n] != '\0') ++n;
  put_field(out, c, "", text, static_cast<int>(n), false);
}

void put_conversion(Output& out, const Conversion& c, char letter, Arguments& args) {
  constexpr char kLower[] = "0123456789abcdef";
  switch (letter) {
    case 'd':
    case 'i': {
      const int64_t v = next_signed(c, args);
      const auto size = static_cast<uint64_t>(v);
      return put_whole(out, c, v < 0 ? 0 - size : size, 10, v < 0 ? "-" : "", kLower);
    }
    case 'u':
      return put_whole(out, c, next_unsigned(c, args), 10, "", kLower);
    case 'x':
      return put_whole(out, c, next_unsigned(c, args), 16, "", kLower);
    case 'X':
      return put_whole(out, c, next_unsigned(c, args), 16, "", "0123456789ABCDEF");
    case 'p':
      return put_whole(out, c, reinterpret_cast<uintptr_t>(va_arg(args.list, void*)), 16, "0x",
                       kLower);
    case 'c': {
      const char one = static_cast<char>(va_arg(args.list, int));
      return put_field(out, c, "", &one, 1, false);
    }
    case 's':
      return put_text(out, c, va_arg(args.list, const char*));
    case 'e':
    case 'f':
    case 'g':
      return put_real(out, c, letter, va_arg(args.list, double));
    default:  // '%', and what it does not know
      return out.put(letter);
  }
}

}  // namespace

int vformat(char* text, size_t n_bytes, const char* format, va_list args) {
  Output out(text, n_bytes);
  Arguments arguments;
  va_copy(arguments.list, args);
  for (const char* at = format; *at != '\0'; ++at) {
    if (*at != '%') {
      out.put(*at);
      continue;
    }
    ++at;
    const Conversion c = read_conversion(&at, arguments);
    if (*at == '\0') break;
    put_conversion(out, c, *at, arguments);
  }
  va_end(arguments.list);
  return out.finish();
}

int format(char* text, size_t n_bytes, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const int n = vformat(text, n_bytes, format, args);
  va_end(args);
  return n;
}

}  // namespace moe
