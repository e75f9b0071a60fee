// SPDX-License-Identifier: MIT
#pragma once
// Gates and norms around a recurrence. What they say of groups: kernels/mixers/groups.h. Plain C
// headers only.

#include "kernels/activation.h"
#include "kernels/mixers/groups.h"

namespace moe {

/// True if none of n values is NaN or infinite. One group does it.
template <class Isa>
MOE_HD_CALL bool all_finite(const float* x, int n) {
  typename Isa::F finite = Isa::zero();  // becomes NaN with the first that is not
  for (int i = 0; i < n; i += 16) finite = Isa::fma(load_lanes<Isa>(x, i, n), Isa::zero(), finite);
  return Isa::count(Isa::eq(finite, finite)) == 16;
}

/// x = factor x / sqrt(sum of squares + eps), over n values. One group does it.
template <class Isa>
MOE_HD_CALL void scale_to_unit(float* x, int n, float eps, float factor) {
  const auto scale = Isa::set1(factor / __builtin_sqrtf(squares_of<Isa>(x, n) + eps));
  for (int i = 0; i < n; i += 16) {
    store_lanes<Isa>(x, Isa::mul(load_lanes<Isa>(x, i, n), scale), i, n);
  }
}

/// e^-(speed step), of a step that is not negative. No finite numbers make it NaN: at the ends it
/// is 0 or 1.
template <class Isa>
MOE_INLINE typename Isa::F decay_of(typename Isa::F step, typename Isa::F speed) {
  return by_lanes_of<Isa>(Isa::sub(Isa::zero(), Isa::mul(speed, step)),
                          []<class L>(L, typename L::F v) { return exp_lanes<L>(v); });
}

/// How groups take part in what is done to a row: one of them alone, or all, each with its columns.
enum class RowOf : uint8_t { kGroup, kAll };

/// x = weight x / sqrt(mean of squares + eps) * silu(gate), or sigmoid(gate), over n values.
template <class Isa, bool kSigmoid = false, RowOf kRow = RowOf::kGroup>
MOE_HD_CALL void gated_norm(float* x, const float* weight, const float* gate, int n, float eps) {
  constexpr bool kAlone = kRow == RowOf::kGroup;
  const float mean = squares_of<Isa>(x, n) / static_cast<float>(n);
  const auto scale = Isa::set1(1.0f / __builtin_sqrtf(mean + eps));
  if constexpr (!kAlone) wait_for_groups<Isa>();  // all have read x
  const int step = kAlone ? 16 : column_step<Isa>();
  for (int i = kAlone ? 0 : first_column<Isa>(); i < n; i += step) {
    const auto z = by_lanes_of<Isa>(load_lanes<Isa>(gate, i, n), []<class L>(L, typename L::F v) {
      if constexpr (kSigmoid) {
        return sigmoid_lanes<L>(v);
      } else {
        return activations::silu<L>(v, L::splat(1.0f));
      }
    });
    const auto y =
        Isa::mul(Isa::mul(load_lanes<Isa>(x, i, n), scale), load_lanes<Isa>(weight, i, n));
    store_lanes<Isa>(x, Isa::mul(y, z), i, n);
  }
}

/// y = silu(x), over n values, shared by the groups.
template <class Isa>
MOE_HD_CALL void silu_of(const float* x, int n, float* y) {
  for (int i = first_column<Isa>(); i < n; i += column_step<Isa>()) {
    const auto v = by_lanes_of<Isa>(load_lanes<Isa>(x, i, n), []<class L>(L, typename L::F w) {
      return activations::silu<L>(w, L::splat(1.0f));
    });
    store_lanes<Isa>(y, v, i, n);
  }
}

/// x = x * silu(gate), over n values, shared by the groups.
template <class Isa>
MOE_HD_CALL void gate_alone(float* x, const float* gate, int n) {
  for (int i = first_column<Isa>(); i < n; i += column_step<Isa>()) {
    const auto z = by_lanes_of<Isa>(load_lanes<Isa>(gate, i, n), []<class L>(L, typename L::F v) {
      return activations::silu<L>(v, L::splat(1.0f));
    });
    store_lanes<Isa>(x, Isa::mul(load_lanes<Isa>(x, i, n), z), i, n);
  }
}

/// x = x * silu(gate), then weight x / sqrt(mean of squares + eps), over n values, shared by the
/// groups.
template <class Isa>
MOE_HD_CALL void gate_then_norm(float* x, const float* weight, const float* gate, int n,
                                float eps) {
  gate_alone<Isa>(x, gate, n);
  wait_for_groups<Isa>();
  const float mean = squares_of<Isa>(x, n) / static_cast<float>(n);
  const auto scale = Isa::set1(1.0f / __builtin_sqrtf(mean + eps));
  wait_for_groups<Isa>();  // all have read x
  for (int i = first_column<Isa>(); i < n; i += column_step<Isa>()) {
    const auto y = Isa::mul(load_lanes<Isa>(x, i, n), scale);
    store_lanes<Isa>(x, Isa::mul(y, load_lanes<Isa>(weight, i, n)), i, n);
  }
}

}  // namespace moe
