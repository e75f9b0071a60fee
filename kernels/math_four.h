// SPDX-License-Identifier: MIT
#pragma once
// Lanes for kernels/math.h from the compiler's generic vectors: four floats, available on every
// target. For host code not compiled for one instruction set.

#include "kernels/math.h"

namespace moe {

struct FourLanes {
  using F = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  using U = uint32_t __attribute__((vector_size(16)));  // wraps
  static MOE_HD F splat(float v) { return F{v, v, v, v}; }
  static MOE_HD F add(F a, F b) { return a + b; }
  static MOE_HD F sub(F a, F b) { return a - b; }
  static MOE_HD F mul(F a, F b) { return a * b; }
  static MOE_HD F div(F a, F b) { return a / b; }
  static MOE_HD F abs(F a) { return from_bits(bits(a) & 0x7fffffff); }
  static MOE_HD F select_lt(F a, F b, F t, F f) {
    const I mask = a < b;
    return from_bits((bits(t) & mask) | (bits(f) & ~mask));
  }
  static MOE_HD I bits(F a) { return reinterpret_cast<I>(a); }
  static MOE_HD F from_bits(I a) { return reinterpret_cast<F>(a); }
  static MOE_HD I splat_int(int32_t v) { return I{v, v, v, v}; }
  static MOE_HD I add_int(I a, I b) {
    return reinterpret_cast<I>(reinterpret_cast<U>(a) + reinterpret_cast<U>(b));
  }
  static MOE_HD I sub_int(I a, I b) {
    return reinterpret_cast<I>(reinterpret_cast<U>(a) - reinterpret_cast<U>(b));
  }
  static MOE_HD I half_int(I a) { return a >> 1; }
  static MOE_HD I to_exponent(I a) { return reinterpret_cast<I>(reinterpret_cast<U>(a) << 23); }

  static MOE_HD F load(const float* p) {
    F v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static MOE_HD void store(float* p, F v) { __builtin_memcpy(p, &v, sizeof v); }
};

}  // namespace moe
