#pragma once
// Rounding to whole numbers, half to even.

namespace moe {

/// |x| < 2^51. Adding 1.5 * 2^52 leaves no bits behind the point; no call of the maths library.
inline double round_half_even(double x) {
  const double shift = 6755399441055744.0;
  return (x + shift) - shift;
}

}  // namespace moe
