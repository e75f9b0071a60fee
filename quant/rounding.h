// SPDX-License-Identifier: MIT
#pragma once
// Rounding to integers, half to even.

namespace moe {

/// |x| < 2^51. Adding 1.5 * 2^52 removes the fraction, without the maths library.
inline double round_half_even(double x) {
  const double shift = 6755399441055744.0;
  return (x + shift) - shift;
}

}  // namespace moe
