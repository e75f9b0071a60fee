// SPDX-License-Identifier: MIT
#pragma once
// Arithmetic on untrusted sizes: every function returns false and leaves `out` unchanged on
// overflow.

#include <cstddef>
#include <cstdint>

namespace moe {

template <class T>
[[nodiscard]] inline bool checked_add(T a, T b, T* out) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}

template <class T>
[[nodiscard]] inline bool checked_mul(T a, T b, T* out) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}

/// Smallest multiple of `unit` (not 0) that is >= n. The caller ensures that it fits.
template <class T>
constexpr T round_up(T n, T unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace moe
