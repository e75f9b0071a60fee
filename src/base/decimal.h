// SPDX-License-Identifier: MIT
#pragma once
// The exact decimal digits of floating-point numbers.

#include <cstddef>

namespace moe {

/// A finite number as its decimal digits: 0.DIGITS * 10^exponent, without leading zeros, at least
/// one digit; zero is "0" with the exponent 1.
struct Decimal {
  static constexpr size_t kMost = 800;  // of a double: at most 767
  char digits[kMost];
  int n = 0;
  int exponent = 0;

  /// The digits of |value|, all of them.
  explicit Decimal(double value);
  /// Rounds to so many digits, which may be none or negative, exactly and to even in a tie. Fewer
  /// digits than that remain fewer.
  void round(int n_digits);
  /// Digit i, which is 0 outside.
  char digit(int i) const { return i >= 0 && i < n ? digits[i] : '0'; }
};

}  // namespace moe
