// SPDX-License-Identifier: MIT
#pragma once
// An Isa's 16 lanes as those of kernels/math.h, and rows by lanes. For code that is compiled once
// per instruction set. Plain C headers only.

#include "kernels/math.h"
#include "src/base/inline.h"

// MOE_NO_PRE: gcc's elimination of partial redundancies keeps values for the next iteration, which
// moves sums to memory in loops that have no register left.
#if defined(__CUDACC__)
#define MOE_UNROLL
#define MOE_NO_PRE
#elif defined(__clang__)
#define MOE_UNROLL _Pragma("clang loop unroll(full)")
#define MOE_NO_PRE
#else
#define MOE_UNROLL _Pragma("GCC unroll 64")
#define MOE_NO_PRE __attribute__((optimize("no-tree-pre")))
#endif

namespace moe {

template <class Isa>
struct LanesOf {
  using F = typename Isa::F;
  using I = typename Isa::I;
  MOE_INLINE F splat(float v) { return Isa::set1(v); }
  MOE_INLINE F add(F a, F b) { return Isa::add(a, b); }
  MOE_INLINE F sub(F a, F b) { return Isa::sub(a, b); }
  MOE_INLINE F mul(F a, F b) { return Isa::mul(a, b); }
  MOE_INLINE F div(F a, F b) { return Isa::div(a, b); }
  MOE_INLINE F abs(F a) { return Isa::abs(a); }
  MOE_INLINE F select_lt(F a, F b, F t, F f) { return Isa::select(Isa::lt(a, b), t, f); }
  MOE_INLINE I bits(F a) { return Isa::bits(a); }
  MOE_INLINE F from_bits(I a) { return Isa::from_bits(a); }
  MOE_INLINE I splat_int(int32_t v) { return Isa::set1_i(v); }
  MOE_INLINE I add_int(I a, I b) { return Isa::add(a, b); }
  MOE_INLINE I sub_int(I a, I b) { return Isa::sub(a, b); }
  MOE_INLINE I half_int(I a) { return Isa::template sar<1>(a); }
  MOE_INLINE I to_exponent(I a) { return Isa::template shl<23>(a); }
};

/// function(L{}, v) on lanes of type L, or on the one lane of a GPU's thread. Without vector
/// instructions it is computed lane by lane, with the same bits and a sixteenth of the code.
template <class Isa, class Function>
MOE_INLINE typename Isa::F by_lanes_of(typename Isa::F v, const Function& function) {
  if constexpr (sizeof v == sizeof(float)) {
    return function(ScalarLanes{}, v);
  } else if constexpr (Isa::kMaxTokens > 1) {
    return function(LanesOf<Isa>{}, v);
  } else {
    float lane[16];
    Isa::store(lane, v);
    for (float& x : lane) x = function(ScalarLanes{}, x);
    return Isa::load(lane);
  }
}

// Elements [i, i + 16) of a row of n, as far as there are so many; the others read 0.
template <class Isa>
MOE_INLINE typename Isa::F load_lanes(const float* p, int i, int n) {
  return i + 16 <= n ? Isa::load(p + i) : Isa::load_n(p + i, n - i);
}
template <class Isa>
MOE_INLINE void store_lanes(float* p, typename Isa::F v, int i, int n) {
  if (i + 16 <= n) {
    Isa::store(p + i, v);
  } else {
    Isa::store_n(p + i, v, n - i);
  }
}

/// The sum of squares of a row: 16 striped lanes, then the fixed tree.
template <class Isa>
MOE_HD_CALL float squares_of(const float* x, int n) {
  typename Isa::F sum = Isa::zero();
  for (int i = 0; i < n; i += 16) {
    const typename Isa::F v = load_lanes<Isa>(x, i, n);
    sum = Isa::fma(v, v, sum);
  }
  return Isa::reduce_add(sum);
}

}  // namespace moe
