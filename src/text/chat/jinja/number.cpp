// SPDX-License-Identifier: MIT
// Exact conversion between doubles and decimal text, and Python's order, division, remainder and
// rounding.
#include "src/text/chat/jinja/number.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "src/base/format.h"
#include "src/base/number.h"

namespace moe::jinja {
namespace {

constexpr double kTwo63 = 9223372036854775808.0;

// A natural number for exact comparisons of doubles with decimal numbers.
class Natural {
 public:
  explicit Natural(uint64_t value) {
    for (; value != 0; value >>= 32) limbs_[n_++] = static_cast<uint32_t>(value);
  }
  void times_plus(uint32_t factor, uint32_t added) {
    uint64_t carry = added;
    for (size_t i = 0; i < n_ || carry != 0; ++i) {
      if (i == n_) limbs_[n_++] = 0;
      carry += uint64_t{limbs_[i]} * factor;
      limbs_[i] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  // base: 2 or 10
  void times_power(uint32_t base, int exponent) {
    const int most = base == 2 ? 31 : 9;
    for (; exponent > 0; exponent -= most) {
      uint32_t factor = 1;
      for (int i = 0; i < std::min(exponent, most); ++i) factor *= base;
      times_plus(factor, 0);
    }
  }
  // -1, 0 or 1.
  int compare(const Natural& other) const {
    if (n_ != other.n_) return n_ < other.n_ ? -1 : 1;
    for (size_t i = n_; i-- > 0;) {
      if (limbs_[i] != other.limbs_[i]) return limbs_[i] < other.limbs_[i] ? -1 : 1;
    }
    return 0;
  }

 private:
  uint32_t limbs_[96] = {};  // 3072 bits; the products below have at most 2400
  size_t n_ = 0;
};

constexpr int kMostPower = 330;    // from 10^330 on every number is infinite
constexpr int kLeastPower = -400;  // 40 digits times 10^-400 are 0
constexpr size_t kMostDigits = 40;

// The sign of m 2^k - digits 10^exponent.
int compare_scaled(uint64_t m, int k, const Natural& digits, int exponent) {
  Natural left(m);
  Natural right = digits;
  left.times_power(10, -exponent);
  right.times_power(10, exponent);
  left.times_power(2, k);
  right.times_power(2, -k);
  return left.compare(right);
}

// Mantissa and exponent of a double that is not negative: m 2^k.
void split_double(uint64_t bits, uint64_t* m, int* k) {
  const auto biased = static_cast<int>(bits >> 52);
  *m = bits & ((uint64_t{1} << 52) - 1);
  if (biased != 0) *m |= uint64_t{1} << 52;
  *k = (biased == 0 ? 1 : biased) - 1075;
}

// The double next to digits 10^exponent; of two equally near ones the even one.
double nearest_double(const Natural& digits, int exponent) {
  constexpr uint64_t kInfinity = uint64_t{0x7FF} << 52;
  uint64_t m = 0;
  int k = 0;
  uint64_t low = 0;  // the largest that is at most the number
  for (uint64_t high = kInfinity; high - low > 1;) {
    const uint64_t middle = low + (high - low) / 2;
    split_double(middle, &m, &k);
    (compare_scaled(m, k, digits, exponent) <= 0 ? low : high) = middle;
  }
  split_double(low, &m, &k);
  const int half = compare_scaled(2 * m + 1, k - 1, digits, exponent);
  const bool up = half < 0 || (half == 0 && low % 2 != 0);
  return std::bit_cast<double>(low + (up ? 1 : 0));
}

// Whether `value` is the double next to digits 10^exponent.
bool reads_as(const Natural& digits, int exponent, double value) {
  uint64_t m = 0;
  int k = 0;
  const auto bits = std::bit_cast<uint64_t>(value);
  split_double(bits, &m, &k);
  const int above = compare_scaled(2 * m + 1, k - 1, digits, exponent);
  const bool narrow = m == uint64_t{1} << 52 && k > -1074;  // the one below has half the distance
  const int below = m == 0   ? -1
                    : narrow ? compare_scaled(4 * m - 1, k - 2, digits, exponent)
                             : compare_scaled(2 * m - 1, k - 1, digits, exponent);
  const bool even = m % 2 == 0;
  return (above > 0 || (above == 0 && even)) && (below < 0 || (below == 0 && even));
}

// Digits that the C library wrote; its point, which depends on the locale, is skipped.
Natural written_digits(const char* text) {
  Natural digits(0);
  for (; *text != '\0' && *text != 'e'; ++text) {
    if (is_digit(*text)) digits.times_plus(10, static_cast<uint32_t>(*text - '0'));
  }
  return digits;
}

double power_of_ten(int n) {
  double out = 1;  // exact up to 22
  for (; n > 0; --n) out *= 10;
  return out;
}

double magnitude(double x) { return std::fabs(x); }

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

Reading read_integer(std::string_view text, int base, int64_t* out) {
  bool after_digit = false;  // or a prefix: an underscore may follow
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    const int of_prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    after_digit = of_prefix != 0 && (base == 0 || base == of_prefix);
    if (after_digit) {
      text.remove_prefix(2);
      base = of_prefix;
    }
  }
  const bool zero = text.find_first_not_of("0_") == std::string_view::npos;
  if (base == 0 && !zero && text.starts_with("0")) return Reading::kNotOne;
  if (base == 0) base = 10;
  int64_t value = 0;
  bool too_long = false;
  for (const char c : text) {
    if (c == '_' && !after_digit) return Reading::kNotOne;
    after_digit = c != '_';
    if (!after_digit) continue;
    const char lower = static_cast<char>(c | 0x20);
    const int digit = is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
    if (digit >= base) return Reading::kNotOne;
    too_long = too_long || value > 100'000'000'000'000'000;
    if (!too_long) value = value * base + digit;
  }
  if (text.empty() || !after_digit) return Reading::kNotOne;
  *out = value;
  return too_long ? Reading::kTooLong : Reading::kDone;
}

Reading read_float(std::string_view text, double* out) {
  for (size_t k = 0; k < text.size(); ++k) {  // underscores stand between digits
    if (text[k] != '_') continue;
    const bool between =
        k > 0 && is_digit(text[k - 1]) && k + 1 < text.size() && is_digit(text[k + 1]);
    if (!between) return Reading::kNotOne;
  }
  Natural digits(0);
  size_t n = 0;  // digits without zeros in front
  int exponent = 0;
  size_t i = 0;
  bool any = false;
  for (bool fraction = false; i < text.size(); ++i) {
    if (text[i] == '_') continue;
    if (text[i] == '.' && !fraction) {
      fraction = true;
      continue;
    }
    if (!is_digit(text[i])) break;
    any = true;
    n += n > 0 || text[i] != '0' ? 1U : 0U;
    if (n > kMostDigits) continue;
    digits.times_plus(10, static_cast<uint32_t>(text[i] - '0'));
    exponent -= fraction ? 1 : 0;
  }
  if (!any) return Reading::kNotOne;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const bool minus = ++i < text.size() && text[i] == '-';
    if (minus || (i < text.size() && text[i] == '+')) ++i;
    if (i == text.size()) return Reading::kNotOne;
    int given = 0;
    for (; i < text.size() && (is_digit(text[i]) || text[i] == '_'); ++i) {
      if (text[i] != '_') given = std::min(given * 10 + (text[i] - '0'), 9999);
    }
    exponent += minus ? -given : given;
  }
  if (i != text.size()) return Reading::kNotOne;
  if (n > kMostDigits) return Reading::kTooLong;
  *out = 0;
  if (n == 0 || exponent < kLeastPower) return Reading::kDone;
  *out = exponent > kMostPower ? std::bit_cast<double>(uint64_t{0x7FF} << 52)
                               : nearest_double(digits, exponent);
  return Reading::kDone;
}

size_t write_float(double value, char out[kMaxFloatText]) {
  const auto copy = [&](const char* text) {
    const size_t n = std::strlen(text);
    std::memcpy(out, text, n);
    return n;
  };
  if (value != value) return copy("nan");
  if (value - value != 0) return copy(value > 0 ? "inf" : "-inf");
  size_t at = 0;
  if (std::signbit(value)) out[at++] = '-';
  value = magnitude(value);
  char text[kMaxFloatText];  // d.ddde+xx
  int exponent = 0;
  for (int n_digits = 1; n_digits <= 17; ++n_digits) {
    format(text, sizeof text, "%.*e", n_digits - 1, value);
    const char* p = std::strchr(text, 'e') + 1;
    const bool minus = *p++ == '-';
    for (exponent = 0; is_digit(*p); ++p) exponent = exponent * 10 + (*p - '0');
    if (minus) exponent = -exponent;
    if (reads_as(written_digits(text), exponent - n_digits + 1, value)) break;
  }
  char digits[20] = {};
  int n = 0;
  for (const char* p = text; *p != 'e'; ++p) {
    if (is_digit(*p)) digits[n++] = *p;
  }
  if (exponent < -4 || exponent >= 16) {
    out[at++] = digits[0];
    if (n > 1) out[at++] = '.';
    for (int i = 1; i < n; ++i) out[at++] = digits[i];
    return at + static_cast<size_t>(format(out + at, kMaxFloatText - at, "e%c%02d",
                                           exponent < 0 ? '-' : '+',
                                           exponent < 0 ? -exponent : exponent));
  }
  const int before = exponent < 0 ? 0 : exponent + 1;  // digits before the point
  if (before == 0) out[at++] = '0';
  for (int i = 0; i < before; ++i) out[at++] = i < n ? digits[i] : '0';
  out[at++] = '.';
  for (int i = exponent; i < -1; ++i) out[at++] = '0';
  for (int i = before; i < n; ++i) out[at++] = digits[i];
  if (before >= n) out[at++] = '0';
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
  const bool apart = a != 0 && std::signbit(a) != std::signbit(b);
  if (magnitude(a) - magnitude(a) == 0 && b == b && b - b != 0) return apart ? -1 : a / b;
  const double exact = (a - modulo(a, b)) / b;
  if (exact == 0) return std::signbit(a / b) ? -0.0 : 0.0;
  const double down = floor_of(exact);
  return exact - down > 0.5 ? down + 1 : down;
}

bool is_product(double a, double b, double product) {
  if (a == 0 || b == 0) return product == 0;
  return magnitude(product) > 1e-250 && magnitude(product) < 1e300 && std::fma(a, b, -product) == 0;
}

double floor_of(double value) {
  const double whole = truncate(value);
  return whole > value ? whole - 1 : whole;
}

// snprintf() rounds exactly, to even in a tie.
double round_to(double value, int digits) {
  constexpr double kTwo53 = 9007199254740992.0;
  if (value != value || (digits >= 0 && magnitude(value) >= kTwo53)) return value;
  if (magnitude(value) >= kTwo63) return value;
  char text[64];
  const double scaled = digits >= 0 ? magnitude(value) : magnitude(value) / power_of_ten(-digits);
  format(text, sizeof text, "%.*f", std::max(digits, 0), scaled);
  const double rounded = nearest_double(written_digits(text), -digits);
  return std::signbit(value) ? -rounded : rounded;
}

}  // namespace moe::jinja
