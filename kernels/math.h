// SPDX-License-Identifier: MIT
#pragma once
// The project's elementary functions: the same source for every ISA, CUDA and scalar code, so that
// results do not depend on the C library, the compiler or the vector width. Compile with
// -ffp-contract=off (nvcc: -fmad=false); no fused multiply-add is used here.
//
// The float functions are templates over "lanes": a type L with an F (one float, or a vector of
// them), an I (as many int32) and the operations of ScalarLanes. Vector and scalar instances
// perform the same operations on every lane and are therefore bit-equal. Errors over all finite
// arguments: exp 1 ulp, erf 2 ulp, sigmoid 2.5 ulp, softplus 3 ulp.

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define MOE_HD __host__ __device__ __forceinline__
#define MOE_HD_CALL __host__ __device__ inline
#else
#define MOE_HD inline __attribute__((always_inline))
#define MOE_HD_CALL inline  // larger functions, whose address may be taken
#endif
#if defined(__CUDA_ARCH__)
#define MOE_UNROLL_8 _Pragma("unroll 8")
#elif defined(__CUDACC__)  // nvcc's host side knows neither pragma
#define MOE_UNROLL_8
#else
#define MOE_UNROLL_8 _Pragma("GCC unroll 8")
#endif

namespace moe {

/// One float as a vector of one lane.
struct ScalarLanes {
  using F = float;
  using I = int32_t;
  static MOE_HD F splat(float v) { return v; }
  static MOE_HD F add(F a, F b) { return a + b; }
  static MOE_HD F sub(F a, F b) { return a - b; }
  static MOE_HD F mul(F a, F b) { return a * b; }
  static MOE_HD F div(F a, F b) { return a / b; }
  static MOE_HD F abs(F a) { return from_bits(bits(a) & 0x7fffffff); }
  /// a < b ? t : f, per lane; false when a or b is NaN.
  static MOE_HD F select_lt(F a, F b, F t, F f) { return a < b ? t : f; }
  static MOE_HD I bits(F a) { return __builtin_bit_cast(int32_t, a); }
  static MOE_HD F from_bits(I a) { return __builtin_bit_cast(float, a); }
  static MOE_HD I splat_int(int32_t v) { return v; }
  /// Integer operations wrap.
  static MOE_HD I add_int(I a, I b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
  static MOE_HD I sub_int(I a, I b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
  }
  static MOE_HD I half_int(I a) { return a >> 1; }  // arithmetic
  static MOE_HD I to_exponent(I a) { return static_cast<int32_t>(static_cast<uint32_t>(a) << 23); }
};

/// NaN remains NaN.
MOE_HD float clip_to(float v, float limit) {
  v = v > limit ? limit : v;
  return v < -limit ? -limit : v;
}

namespace math_detail {

// c[0] + c[1] x + ... by Horner's rule, one rounding per multiplication and addition.
template <class L, size_t kN>
MOE_HD typename L::F polynomial(typename L::F x, const float (&c)[kN]) {
  typename L::F r = L::splat(c[kN - 1]);
  MOE_UNROLL_8
  for (size_t i = kN - 1; i > 0; --i) r = L::add(L::mul(r, x), L::splat(c[i - 1]));
  return r;
}

}  // namespace math_detail

/// e^x. Overflows to infinity, underflows through the subnormals to 0; NaN stays NaN.
template <class L>
MOE_HD typename L::F exp_lanes(typename L::F x) {
  using F = typename L::F;
  using I = typename L::I;
  // (exp(r) - 1 - r) / r^2 on |r| <= ln 2 / 2, minimax.
  const float c[] = {
      0.5f, 0.16666667163f, 0.041666269302f, 0.0083332639188f, 0.0013946073595f, 0.00019918385078f};
  const F lowest = L::splat(-104.0f);  // e^-104 rounds to 0
  const F highest = L::splat(89.0f);   // e^89 rounds to infinity
  x = L::select_lt(x, lowest, lowest, x);
  x = L::select_lt(highest, x, highest, x);
  const F magic =
      L::splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, half to even
  const F shifted = L::add(L::mul(x, L::splat(1.44269504089f)), magic);
  const F n = L::sub(shifted, magic);
  F r = L::sub(x, L::mul(n, L::splat(0.693359375f)));  // ln 2 in two parts; this product is exact
  r = L::sub(r, L::mul(n, L::splat(-2.12194440e-4f)));
  F p = math_detail::polynomial<L>(r, c);
  p = L::add(L::add(L::mul(p, L::mul(r, r)), r), L::splat(1.0f));
  // 2^n in two factors, so that neither leaves the range of normal numbers.
  const I whole = L::sub_int(L::bits(shifted), L::bits(magic));
  const I half = L::half_int(whole);
  const I bias = L::splat_int(127);
  const F scale1 = L::from_bits(L::to_exponent(L::add_int(half, bias)));
  const F scale2 = L::from_bits(L::to_exponent(L::add_int(L::sub_int(whole, half), bias)));
  return L::mul(L::mul(p, scale1), scale2);
}

/// 1 / (1 + e^-x); overflows for neither sign of x.
template <class L>
MOE_HD typename L::F sigmoid_lanes(typename L::F x) {
  using F = typename L::F;
  const F zero = L::splat(0.0f);
  const F one = L::splat(1.0f);
  const F e = exp_lanes<L>(L::sub(zero, L::abs(x)));
  return L::div(L::select_lt(x, zero, e, one), L::add(one, e));
}

/// ln(1 + e^x); overflows for neither sign of x.
template <class L>
MOE_HD typename L::F softplus_lanes(typename L::F x) {
  using F = typename L::F;
  // (2 atanh(s) / s - 2) / s^2 in s^2 on s <= 1 / 3.
  const float c[] = {0.666666687f, 0.399997056f, 0.28592357f, 0.217065766f, 0.232243285f};
  const F zero = L::splat(0.0f);
  const F u = exp_lanes<L>(L::sub(zero, L::abs(x)));
  const F s = L::div(u, L::add(L::splat(2.0f), u));  // ln(1 + u) = 2 atanh(s)
  const F z = L::mul(s, s);
  const F rest = L::mul(L::mul(s, z), math_detail::polynomial<L>(z, c));
  return L::add(L::select_lt(x, zero, zero, x), L::add(rest, L::add(s, s)));
}

/// The error function.
template <class L>
MOE_HD typename L::F erf_lanes(typename L::F x) {
  using F = typename L::F;
  // erf(x) / x - 1 in x^2 on |x| <= 0.93, minimax.
  const float inner[] = {0.128379151225f,   -0.376124948263f,  0.112818032503f,
                         -0.0267655756325f, 0.00499099027365f, -0.000597693608144f};
  // -ln(erfc(t)) / t on 0.92 <= t <= 4, minimax.
  const float outer[] = {1.12851071358f,    0.635730922222f,  0.105244636536f,
                         -0.0228785909713f, 0.0032113112975f, -0.000213532082853f};
  const F one = L::splat(1.0f);
  const F four = L::splat(4.0f);
  const F zero = L::splat(0.0f);
  const F small = L::add(x, L::mul(x, math_detail::polynomial<L>(L::mul(x, x), inner)));
  const F magnitude = L::abs(x);
  const F t = L::select_lt(four, magnitude, four, magnitude);  // erf(4) rounds to 1
  const F e = exp_lanes<L>(L::sub(zero, L::mul(t, math_detail::polynomial<L>(t, outer))));
  const F large = L::sub(one, e);
  const F with_sign = L::select_lt(x, zero, L::sub(zero, large), large);
  return L::select_lt(L::splat(0.925f), magnitude, with_sign, small);
}

MOE_HD float exp_float(float x) { return exp_lanes<ScalarLanes>(x); }
MOE_HD float sigmoid_float(float x) { return sigmoid_lanes<ScalarLanes>(x); }
MOE_HD float softplus_float(float x) { return softplus_lanes<ScalarLanes>(x); }

// Double precision, for tables that are built once (error about 1e-15 relative; sin and cos about
// 1e-15 absolute up to |x| = 2^25).

MOE_HD double exp_double(double x) {
  if (x < -745.2) return 0;
  if (x > 709.8) return __builtin_inf();
  if (x != x) return x;
  const int32_t n = static_cast<int32_t>(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  const double k = n;
  const double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  double term = 1;
  double sum = 1;
  for (int i = 1; i <= 14; ++i) {
    term *= r / i;
    sum += term;
  }
  const int32_t half = n >> 1;
  const double scale1 = __builtin_bit_cast(double, static_cast<int64_t>(half + 1023) << 52);
  const double scale2 = __builtin_bit_cast(double, static_cast<int64_t>(n - half + 1023) << 52);
  return sum * scale1 * scale2;
}

/// Natural logarithm of a normal x > 0 (NaN below 0, -infinity at 0).
MOE_HD double log_double(double x) {
  if (!(x > 0)) return x == 0 ? -__builtin_inf() : __builtin_nan("");
  if (x == __builtin_inf()) return x;
  int64_t b = __builtin_bit_cast(int64_t, x);
  const int64_t n = (b - 0x3fe6a09e667f3bcd) >> 52;
  b -= static_cast<int64_t>(static_cast<uint64_t>(n) << 52);
  const double m = __builtin_bit_cast(double, b);
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double sum = 0;
  for (int i = 25; i >= 1; i -= 2) sum = sum * z + 1.0 / i;
  const double k = static_cast<double>(n);
  return k * 6.93147180369123816490e-01 + (2 * s * sum + k * 1.90821492927058770002e-10);
}

/// base^exponent for base > 0.
MOE_HD double pow_double(double base, double exponent) {
  return exp_double(exponent * log_double(base));
}

/// Sine and cosine of |x| <= 2^25 together.
MOE_HD void sincos_double(double x, double* sine, double* cosine) {
  const double scaled = x * 0.63661977236758134308;  // 2 / pi
  const int64_t n = static_cast<int64_t>(scaled + (scaled < 0 ? -0.5 : 0.5));
  const double k = static_cast<double>(n);
  // pi / 2 in three parts, the first two of 25 significant bits: k times them is exact.
  double r = x - k * 1.57079631090164184570;
  r -= k * 1.58932547122958567343e-08;
  r -= k * 6.12323399573676588613e-17;
  const double z = r * r;
  double s = 0;
  double c = 0;
  for (int i = 21; i >= 3; i -= 2) s = (s + 1) * (-z / (i * (i - 1)));
  for (int i = 20; i >= 2; i -= 2) c = (c + 1) * (-z / (i * (i - 1)));
  s = r + r * s;
  c = 1 + c;
  const bool swap = (n & 1) != 0;
  *sine = swap ? c : s;
  *cosine = swap ? s : c;
  if ((n & 2) != 0) *sine = -*sine;
  if (((n + 1) & 2) != 0) *cosine = -*cosine;
}

}  // namespace moe
