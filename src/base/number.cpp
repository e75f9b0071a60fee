// SPDX-License-Identifier: MIT
// Reads sign, digits and exponent, then scales by a power of ten.
#include "src/base/number.h"

#include <cstddef>

namespace moe {
namespace {

constexpr int kMaxDigits = 30;
constexpr int kMaxExponent = 60;

// Moves *i past a sign; true for a minus.
bool take_minus(std::string_view s, size_t* i) {
  const bool minus = *i < s.size() && s[*i] == '-';
  if (minus || (*i < s.size() && s[*i] == '+')) ++*i;
  return minus;
}

}  // namespace

bool parse_number(std::string_view s, double* out) {
  double value = 0;
  int digits = 0;
  int exponent = 0;
  size_t i = 0;
  const bool negative = take_minus(s, &i);
  for (bool fraction = false; i < s.size(); ++i) {
    if (s[i] == '.' && !fraction) {
      fraction = true;
    } else if (is_digit(s[i])) {
      value = value * 10 + (s[i] - '0');
      if (fraction) --exponent;
      if (++digits > kMaxDigits) return false;
    } else {
      break;
    }
  }
  if (digits == 0) return false;
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    ++i;
    const bool minus = take_minus(s, &i);
    int e = 0;
    const size_t first = i;
    for (; i < s.size() && is_digit(s[i]) && e < 1000; ++i) e = e * 10 + (s[i] - '0');
    if (i == first) return false;
    exponent += minus ? -e : e;
  }
  if (i != s.size() || exponent > kMaxExponent || exponent < -kMaxExponent) return false;
  double power = 1;
  for (int n = exponent < 0 ? -exponent : exponent; n > 0; --n) power *= 10;
  value = exponent < 0 ? value / power : value * power;
  *out = negative ? -value : value;
  return true;
}

}  // namespace moe
