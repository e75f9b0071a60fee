#include "src/text/chat/jinja/number.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace moe::jinja {
namespace {

constexpr double kTwo63 = 9223372036854775808.0;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

double power_of_ten(int n) {
  double out = 1;  // exact up to 22
  for (; n > 0; --n) out *= 10;
  return out;
}

double magnitude(double x) { return x < 0 ? -x : x; }

// Rounds towards zero, exactly.
double truncate(double x) {
  if (!(magnitude(x) < kTwo63)) return x;
  return static_cast<double>(static_cast<int64_t>(x));
}

// a - n b for the n that leaves less than b, exactly; both finite and positive.
double remainder_of(double a, double b) {
  if (a < b) return a;
  double part = b;
  while (part <= a / 2) part *= 2;
  for (; part >= b; part /= 2) {
    if (a >= part) a -= part;
  }
  return a;
}

}  // namespace

bool read_integer(std::string_view text, int64_t* out) {
  int base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) text.remove_prefix(2);
  }
  const bool zero = text.find_first_not_of("0_") == std::string_view::npos;
  if (base == 10 && !zero && text.starts_with("0")) return false;
  int64_t value = 0;
  bool any = false;
  for (const char c : text) {
    if (c == '_') continue;
    const char lower = static_cast<char>(c | 0x20);
    const int digit = is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
    if (digit >= base || value > 100'000'000'000'000'000) return false;
    value = value * base + digit;
    any = true;
  }
  if (any) *out = value;
  return any;
}

bool read_float(std::string_view text, double* out) {
  constexpr size_t kMostDigits = 400;
  char digits[kMostDigits + 16];  // without the point, which depends on the locale
  size_t n = 0;
  int exponent = 0;
  size_t i = 0;
  for (bool fraction = false; i < text.size(); ++i) {
    if (text[i] == '_') continue;
    if (text[i] == '.' && !fraction) {
      fraction = true;
      continue;
    }
    if (!is_digit(text[i])) break;
    if (n == kMostDigits) return false;
    digits[n++] = text[i];
    exponent -= fraction ? 1 : 0;
  }
  if (n == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const bool minus = ++i < text.size() && text[i] == '-';
    if (minus || (i < text.size() && text[i] == '+')) ++i;
    if (i == text.size()) return false;
    int given = 0;
    for (; i < text.size() && (is_digit(text[i]) || text[i] == '_'); ++i) {
      if (text[i] != '_') given = std::min(given * 10 + (text[i] - '0'), 9999);
    }
    exponent += minus ? -given : given;
  }
  if (i != text.size()) return false;
  (void)std::snprintf(digits + n, sizeof digits - n, "e%d", exponent);
  *out = std::strtod(digits, nullptr);
  return true;
}

size_t write_float(double value, char out[kMaxFloatText]) {
  const auto copy = [&](const char* text) {
    const size_t n = std::strlen(text);
    std::memcpy(out, text, n);
    return n;
  };
  if (value != value) return copy("nan");
  if (value - value != 0) return copy(value > 0 ? "inf" : "-inf");
  char text[kMaxFloatText];  // -d.ddde+xx; the C library's point is that of the locale
  for (int n_digits = 1; n_digits <= 17; ++n_digits) {
    (void)std::snprintf(text, sizeof text, "%.*e", n_digits - 1, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  char digits[20] = {};
  int n = 0;
  const char* p = text;
  size_t at = 0;
  if (*p == '-') out[at++] = *p++;
  for (; *p != 'e'; ++p) {
    if (is_digit(*p)) digits[n++] = *p;
  }
  const int exponent = std::atoi(p + 1);
  if (exponent < -4 || exponent >= 16) {
    out[at++] = digits[0];
    if (n > 1) out[at++] = '.';
    for (int i = 1; i < n; ++i) out[at++] = digits[i];
    return at + static_cast<size_t>(std::snprintf(out + at, kMaxFloatText - at, "e%c%02d",
                                                  exponent < 0 ? '-' : '+',
                                                  exponent < 0 ? -exponent : exponent));
  }
  const int before = exponent < 0 ? 1 : exponent + 1;
  for (int i = 0; i < before; ++i) {
    const int k = exponent < 0 ? -1 : i;
    out[at++] = k >= 0 && k < n ? digits[k] : '0';
  }
  out[at++] = '.';
  for (int i = exponent; i < -1; ++i) out[at++] = '0';
  const int rest = exponent < 0 ? 0 : before;
  for (int i = rest; i < n; ++i) out[at++] = digits[i];
  if (rest >= n) out[at++] = '0';
  return at;
}

int compare_numbers(Value a, Value b) {
  const auto order = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (is_integer(a) && is_integer(b)) return order(a.number, b.number);
  if (is_integer(a)) {
    const int reversed = compare_numbers(b, a);
    return reversed == 2 ? 2 : -reversed;
  }
  const double x = float_of(a);
  if (b.is(Kind::kFloat)) {
    const double y = float_of(b);
    return x != x || y != y ? 2 : order(x, y);
  }
  if (x != x) return 2;
  if (x >= kTwo63) return 1;
  if (x < -kTwo63) return -1;
  const double whole = truncate(x);
  const int first = order(static_cast<int64_t>(whole), b.number);
  return first != 0 ? first : order(x, whole);
}

double modulo(double a, double b) {
  const double size = magnitude(b);
  if (a != a || b != b || magnitude(a) - magnitude(a) != 0) return a - a + (b - b);
  if (size - size != 0) return (a < 0) != (b < 0) && a != 0 ? b : a;
  double rest = remainder_of(magnitude(a), size);
  if (a < 0) rest = -rest;
  if (rest == 0) return b < 0 ? -0.0 : 0.0;
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_divide(double a, double b) {
  const double exact = (a - modulo(a, b)) / b;
  if (exact == 0) return a / b < 0 ? -0.0 : 0.0;
  const double down = floor_of(exact);
  return exact - down > 0.5 ? down + 1 : down;
}

double floor_of(double value) {
  const double whole = truncate(value);
  return whole > value ? whole - 1 : whole;
}

// Both functions of the C library round exactly, to even in a tie.
double round_to(double value, int digits) {
  if (value - value != 0) return value;
  char text[352];
  if (digits >= 0) {
    (void)std::snprintf(text, sizeof text, "%.*f", digits, value);
    return std::strtod(text, nullptr);
  }
  (void)std::snprintf(text, sizeof text, "%.0f", value / power_of_ten(-digits));
  return std::strtod(text, nullptr) * power_of_ten(-digits);
}

}  // namespace moe::jinja
