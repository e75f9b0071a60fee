// SPDX-License-Identifier: MIT
// The exact decimal digits of floating-point numbers, by whole numbers of many words.
#include "src/base/decimal.h"

#include <cstdint>
#include <cstring>

namespace moe {
namespace {

constexpr uint32_t kBase = 1'000'000'000;  // of a word
constexpr int kWordDigits = 9;

/// A whole number; the first word has its lowest nine digits.
struct Whole {
  uint32_t words[90];  // 2^53 * 5^1074 has 767 digits
  int n = 0;

  explicit Whole(uint64_t value) {
    for (; value != 0; value /= kBase) words[n++] = static_cast<uint32_t>(value % kBase);
  }
  void multiply(uint32_t factor) {  // below kBase, so that one word more is enough
    uint64_t carry = 0;
    for (int i = 0; i < n; ++i) {
      carry += uint64_t{words[i]} * factor;
      words[i] = static_cast<uint32_t>(carry % kBase);
      carry /= kBase;
    }
    if (carry != 0) words[n++] = static_cast<uint32_t>(carry);
  }
  // Multiplies by factor^power, `step` factors at once, whose product must be below kBase.
  void multiply(uint32_t factor, int power, int step) {
    uint32_t all = 1;
    for (int i = 0; i < step; ++i) all *= factor;
    for (; power >= step; power -= step) multiply(all);
    for (; power > 0; --power) multiply(factor);
  }
};

}  // namespace

// value = m * 2^e, which is m * 5^-e * 10^e for e below 0.
Decimal::Decimal(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const int biased = static_cast<int>(bits >> 52 & 0x7FF);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const uint64_t m = biased == 0 ? fraction : fraction | uint64_t{1} << 52;
  const int e = (biased == 0 ? 1 : biased) - 1075;
  digits[0] = '0';
  n = exponent = 1;
  if (m == 0) return;
  Whole whole(m);
  if (e >= 0) {
    whole.multiply(2, e, 29);
  } else {
    whole.multiply(5, -e, 12);
  }
  n = 0;
  for (int i = whole.n - 1; i >= 0; --i) {
    uint32_t place = kBase / 10;
    for (int d = 0; d < kWordDigits; ++d, place /= 10) {
      const uint32_t digit = whole.words[i] / place % 10;
      if (n != 0 || digit != 0) digits[n++] = static_cast<char>('0' + digit);
    }
  }
  exponent = n + (e < 0 ? e : 0);
}

void Decimal::round(int n_digits) {
  if (n_digits >= n) return;
  bool up = false;
  if (n_digits >= 0) {
    bool more = false;  // than a half
    for (int i = n_digits + 1; i < n; ++i) more = more || digits[i] != '0';
    const bool odd = n_digits > 0 && (digits[n_digits - 1] - '0') % 2 != 0;
    up = digits[n_digits] > '5' || (digits[n_digits] == '5' && (more || odd));
  }
  n = n_digits > 0 ? n_digits : 0;
  while (up && n > 0 && digits[n - 1] == '9') --n;  // whose zeros digit() supplies
  if (up && n > 0) {
    ++digits[n - 1];
  } else if (up) {
    digits[n++] = '1';
    ++exponent;
  }
}

}  // namespace moe
