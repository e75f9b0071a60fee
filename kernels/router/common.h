// SPDX-License-Identifier: MIT
#pragma once
// Shared by routers: order, softmax, weight rules. Compiled for host and device; float32
// throughout.

#include "kernels/math.h"
#include "kernels/router/info.h"

namespace moe {

/// One token's scores and other inputs of its router.
struct RouterInput {
  const float* scores = nullptr;  // (n_experts): logits, or cosines; null: RouterScores::kTable
  const float* selection_bias = nullptr;  // (n_experts) or null
  int32_t n_experts = 0;
  int32_t table_entry = 0;  // the table's expert for this token id
};

/// Output of a router; all of router_max_k slots. Experts best first, also beyond the count.
struct RouterChoice {
  int32_t* expert = nullptr;
  float* prob = nullptr;    // probability before any weight rule; capacity ranks by it
  float* weight = nullptr;  // 0 beyond the count
};

/// Scratch memory of a router, n_experts of each.
struct RouterScratch {
  float* p = nullptr;
  float* key = nullptr;
  int32_t* heap = nullptr;
};

namespace router_detail {

// The order of experts: higher value first, lower index on ties.
MOE_HD bool before(const float* value, int32_t a, int32_t b) {
  return value[a] > value[b] || (value[a] == value[b] && a < b);
}

MOE_HD_CALL void sift_down(const float* value, int32_t* heap, int32_t n, int32_t i) {
  const int32_t item = heap[i];
  while (2 * i + 1 < n) {
    int32_t child = 2 * i + 1;
    if (child + 1 < n && before(value, heap[child + 1], heap[child])) ++child;
    if (!before(value, heap[child], item)) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = item;
}

}  // namespace router_detail

/// The k best of n values, best first, ties to the lower index. `heap`: n scratch entries.
MOE_HD_CALL void best_first(const float* value, int32_t n, int32_t k, int32_t* heap, int32_t* out) {
  for (int32_t i = 0; i < n; ++i) heap[i] = i;
  for (int32_t i = n / 2 - 1; i >= 0; --i) router_detail::sift_down(value, heap, n, i);
  for (int32_t j = 0; j < k; ++j) {
    out[j] = heap[0];
    heap[0] = heap[n - 1 - j];
    router_detail::sift_down(value, heap, n - 1 - j, 0);
  }
}

/// p = softmax(z) over n values, summed in 16 stripes and a fixed tree.
MOE_HD_CALL void softmax_all(const float* z, int32_t n, float* p) {
  float top = z[0];
  for (int32_t i = 1; i < n; ++i) top = z[i] > top ? z[i] : top;
  float lane[16] = {};
  for (int32_t i = 0; i < n; ++i) {
    p[i] = exp_float(z[i] - top);
    lane[i % 16] += p[i];
  }
  for (int32_t half = 8; half > 0; half /= 2) {
    for (int32_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  for (int32_t i = 0; i < n; ++i) p[i] /= lane[0];
}

/// A team processes one token. Every member runs the router's code on the same values; each()
/// distributes work. The order of every sum is that of one thread, so all teams give the same bits.
/// kernels/cuda/routing/route_warp.h is a warp.
struct OneThread {
  /// Calls f(i) for i < n, each on some member; all members see the results.
  template <class F>
  static MOE_HD void each(int32_t n, const F& f) {
    for (int32_t i = 0; i < n; ++i) f(i);
  }
  static MOE_HD void best_first(const float* value, int32_t n, int32_t k, int32_t* heap,
                                int32_t* out) {
    moe::best_first(value, n, k, heap, out);
  }
  static MOE_HD void softmax_all(const float* z, int32_t n, float* p) { moe::softmax_all(z, n, p); }
};

/// Restricts selection to the best groups of experts (DeepSeek-V2, Liu et al. 2024, section 2.2.2;
/// V3: 2.1.2): `key` becomes minus infinity in the others. A group's score is the sum of its
/// `n_best` (1 or 2) best keys; ties to the lower group. `of_group`: r.n_groups scratch entries.
template <class Team>
MOE_HD_CALL void keep_best_groups(const RouterConfig& r, int32_t n_experts, int32_t n_best,
                                  float* key, float* of_group) {
  if (r.n_groups == 1) return;
  const int32_t size = n_experts / r.n_groups;
  Team::each(r.n_groups, [&](int32_t g) {
    float first = -__builtin_inff();
    float second = -__builtin_inff();
    for (int32_t i = g * size; i < (g + 1) * size; ++i) {
      if (key[i] > first) {
        second = first;
        first = key[i];
      } else if (key[i] > second) {
        second = key[i];
      }
    }
    of_group[g] = n_best == 2 && size > 1 ? first + second : first;
  });
  Team::each(n_experts, [&](int32_t i) {
    int32_t better = 0;
    for (int32_t g = 0; g < r.n_groups; ++g) {
      better += router_detail::before(of_group, g, i / size) ? 1 : 0;
    }
    if (better >= r.top_groups) key[i] = -__builtin_inff();
  });
}

/// The maximum number of experts with a threshold.
MOE_HD int32_t threshold_most(const RouterConfig& r, int32_t n_experts) {
  return r.max_k > 0 && r.max_k < n_experts ? r.max_k : n_experts;
}

/// Number of experts for a threshold: rank j is included iff j = 0 or the preceding sum is below t
/// (XMoE, Yang et al. 2024, Eq. 5); t = 1 includes all; then min_k and max_k.
MOE_HD_CALL int32_t threshold_count(const RouterConfig& r, const float* p, const int32_t* order,
                                    int32_t n_experts) {
  const int32_t most = threshold_most(r, n_experts);
  int32_t count = most;
  if (r.threshold < 1.0f) {
    float sum = p[order[0]];
    count = 1;
    while (count < most && sum < r.threshold) sum += p[order[count++]];
  }
  return count < r.min_k ? r.min_k : count;
}

/// True if a rule makes the weights of the selected experts sum to 1.
MOE_HD bool divides(RouterWeights rule) {
  return rule == RouterWeights::kRenormalised || rule == RouterWeights::kChosen;
}

/// True if a gate's weights are divided by their sum (or are a softmax over the selected).
MOE_HD bool gate_renormalises(const RouterConfig& r) {
  if (r.gate == CosineGate::kSigmoid) return r.topk_norm == 1;
  return r.k > 1 && r.topk_norm != 0;
}

/// Weights of the first `count` slots from their probabilities, times the scale; 0 in the others.
/// `z`: the values whose softmax kChosen takes (logits over the temperature, if any).
template <class Team>
MOE_HD_CALL void apply_weight_rule(RouterWeights rule, float scale, const float* z, int32_t count,
                                   int32_t max_k, const RouterChoice& out) {
  float top = 0;
  if (rule == RouterWeights::kChosen) {  // a selection bias may rank another expert first
    top = z[out.expert[0]];
    for (int32_t j = 1; j < count; ++j) top = z[out.expert[j]] > top ? z[out.expert[j]] : top;
  }
  Team::each(count, [&](int32_t j) {
    out.weight[j] = rule == RouterWeights::kChosen ? exp_float(z[out.expert[j]] - top)
                    : rule == RouterWeights::kOne  ? 1.0f
                                                   : out.prob[j];
  });
  float sum = 0;
  for (int32_t j = 0; j < count; ++j) sum += out.weight[j];
  const bool divide = divides(rule);
  if (divide && sum < 1e-20f) sum = 1e-20f;  // all sigmoids may underflow
  Team::each(max_k, [&](int32_t j) {
    if (j >= count) {
      out.weight[j] = 0;
    } else {
      out.weight[j] = (divide ? out.weight[j] / sum : out.weight[j]) * scale;
    }
  });
}

}  // namespace moe
