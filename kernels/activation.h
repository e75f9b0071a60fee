// SPDX-License-Identifier: MIT
#pragma once
// Activation functions on lanes (kernels/math.h), shared by every instruction set and CUDA. To add
// one, write a function here and a line in MOE_ACTIVATIONS.

#include "kernels/kinds.h"
#include "kernels/math.h"

namespace moe {
namespace activations {

// Only silu uses alpha; the others take it for a uniform signature.

template <class L>
MOE_HD typename L::F relu(typename L::F x, typename L::F) {
  const typename L::F zero = L::splat(0.0f);
  return L::select_lt(x, zero, zero, x);
}

template <class L>
MOE_HD typename L::F relu2(typename L::F x, typename L::F alpha) {
  const typename L::F r = relu<L>(x, alpha);
  return L::mul(r, r);
}

template <class L>
MOE_HD typename L::F silu(typename L::F x, typename L::F alpha) {
  return L::mul(x, sigmoid_lanes<L>(L::mul(alpha, x)));
}

template <class L>
MOE_HD typename L::F gelu(typename L::F x, typename L::F) {
  const typename L::F half = L::mul(L::splat(0.5f), x);
  const typename L::F e = erf_lanes<L>(L::mul(x, L::splat(0.70710678118655f)));
  return L::mul(half, L::add(L::splat(1.0f), e));
}

template <class L>
MOE_HD typename L::F gelu_tanh(typename L::F x, typename L::F) {
  // (1 + tanh u) / 2 = sigmoid(2 u), without the cancellation.
  const typename L::F cube = L::mul(L::mul(L::mul(L::splat(0.044715f), x), x), x);
  const typename L::F u = L::mul(L::splat(1.5957691216057f), L::add(x, cube));  // 2 sqrt(2 / pi)
  return L::mul(x, sigmoid_lanes<L>(u));
}

template <class L>
MOE_HD typename L::F tanh(typename L::F x, typename L::F) {
  using F = typename L::F;
  // 2 sigmoid(2 x) - 1, or its series where that would cancel: the next term is below 2^-24.
  const F square = L::mul(x, x);
  F series = L::splat(0.021869489f);
  series = L::add(L::mul(series, square), L::splat(-0.053968254f));
  series = L::add(L::mul(series, square), L::splat(0.13333333f));
  series = L::add(L::mul(series, square), L::splat(-0.33333333f));
  series = L::add(L::mul(series, square), L::splat(1.0f));
  const F twice = sigmoid_lanes<L>(L::add(x, x));
  const F far = L::sub(L::add(twice, twice), L::splat(1.0f));
  return L::select_lt(square, L::splat(0.0625f), L::mul(series, x), far);
}

}  // namespace activations

/// act(x). Kinds have been validated.
template <class L>
MOE_HD typename L::F activate(Activation kind, typename L::F x, typename L::F alpha) {
  switch (kind) {
#define MOE_ACTIVATION(value, name, function) \
  case Activation::value:                     \
    return activations::function<L>(x, alpha);
    MOE_ACTIVATIONS(MOE_ACTIVATION)
#undef MOE_ACTIVATION
  }
  __builtin_unreachable();
}

/// Soft cap: limit * tanh(x / limit).
template <class L>
MOE_HD typename L::F soft_cap(typename L::F x, typename L::F limit) {
  return L::mul(limit, activations::tanh<L>(L::div(x, limit), limit));
}

}  // namespace moe
