// SPDX-License-Identifier: MIT
// Routing on the CPU: scores, choices, the caller's hook, capacity, statistics, and pairs grouped
// by expert.
#include <algorithm>
#include <atomic>

#include "kernels/cpu/device_cpu_ffn.h"
#include "kernels/router/route.h"
#include "quant/formats.h"
#include "src/base/inline.h"

namespace moe {
namespace {

// Router matrices take float inputs, whatever the file stores.
Matrix in_float(Matrix m) {
  m.act = ActPrecision::kF32;
  return m;
}

void cosine_scores(FfnCall& call) {
  CpuStream& s = call.s;
  const RouterWeightsView& w = call.op.router_weights;
  const RouterConfig& config = call.op.router;
  const Matrix proj = in_float(w.proj);
  const Matrix embedding = in_float(w.embedding);
  const int32_t d_e = proj.rows;
  call.rt.linear(s, proj, w.proj_bias, call.router_x, call.d_in, call.n_tokens, s.cosine, d_e);
  if (config.normalise_token) {
    for (int32_t t = 0; t < call.n_tokens; ++t) {
      float* z = s.cosine + static_cast<int64_t>(t) * d_e;
      const float length = __builtin_sqrtf(call.rt.kernels.sum_squares(z, d_e));
      const float divisor = length < config.cosine_eps ? config.cosine_eps : length;
      for (int32_t i = 0; i < d_e; ++i) z[i] /= divisor;
    }
  }
  call.rt.linear(s, embedding, nullptr, s.cosine, d_e, call.n_tokens, s.scores, embedding.rows);
  const float* lengths = w.embedding_length;
  for (int32_t e = 0; e < embedding.rows; ++e) {
    const float length = lengths != nullptr ? lengths[e] : row_length(embedding, e);
    const float divisor = std::max(length, config.cosine_eps);
    for (int64_t t = 0; t < call.n_tokens; ++t) s.scores[t * embedding.rows + e] /= divisor;
  }
}

void compute_scores(FfnCall& call) {
  CpuStream& s = call.s;
  const RouterWeightsView& w = call.op.router_weights;
  switch (router_info(call.op.router).scores) {
    case RouterScores::kTable:
      for (int32_t t = 0; t < call.n_tokens; ++t) {
        s.table_entry[t] = w.table[call.op.rows[t / call.op.n_subheads].token];
      }
      return;
    case RouterScores::kCosine:
      return cosine_scores(call);
    case RouterScores::kLinear:
      return call.rt.linear(s, in_float(w.scores), w.bias, call.router_x, call.d_in, call.n_tokens,
                            s.scores, call.op.n_experts);
  }
}

Routing routing_of(const FfnCall& call) {
  CpuStream& s = call.s;
  return {call.n_tokens, call.max_k, s.expert, s.weight, s.kept, s.count, s.scores};
}

RouterScratch scratch_of(const CpuStream& s, int thread) {
  const int64_t at = static_cast<int64_t>(thread) * s.shape.max_experts;
  return {s.route_p + at, s.route_key + at, s.route_heap + at};
}

void choose(FfnCall& call, const RouteOp& route) {
  std::atomic<bool> failed{false};
  call.rt.for_range(
      call.n_tokens, int64_t{16} * call.op.n_experts, [&](int64_t begin, int64_t end, int thread) {
        const Status status = route_tokens(route, static_cast<int32_t>(begin),
                                           static_cast<int32_t>(end), scratch_of(call.s, thread));
        if (!status.ok()) failed.store(true, std::memory_order_relaxed);
      });
  // Repeat in order, so that the message names the first token for any number of threads.
  if (failed.load()) call.s.latch(route_tokens(route, 0, call.n_tokens, scratch_of(call.s, 0)));
}

// Applies capacity separately to every run of rows of one session.
void limit_capacity(FfnCall& call, const RouteOp& route) {
  if (!(call.op.router.gamma > 0)) return;
  const BatchRow* rows = call.op.rows;
  for (int32_t begin = 0; begin < call.op.n_rows;) {
    int32_t end = begin + 1;
    while (end < call.op.n_rows && (rows == nullptr || rows[end].session == rows[begin].session)) {
      ++end;
    }
    apply_capacity(route, begin * call.op.n_subheads, end * call.op.n_subheads, call.s.order,
                   call.s.route_heap);
    begin = end;
  }
}

template <class T>
void copy_out(const T* from, int64_t n, T* to) {
  if (to != nullptr) std::copy(from, from + n, to);
}

void report(const FfnCall& call) {
  Routing* out = call.op.routing_out;
  if (out == nullptr) return;
  const CpuStream& s = call.s;
  const int64_t slots = static_cast<int64_t>(call.n_tokens) * call.max_k;
  out->n_tokens = call.n_tokens;
  out->max_k = call.max_k;
  copy_out(s.expert, slots, out->expert);
  copy_out(s.weight, slots, out->weight);
  copy_out(s.kept, slots, out->kept);
  copy_out(s.count, call.n_tokens, out->count);
  if (router_info(call.op.router).scores == RouterScores::kTable) return;
  copy_out(s.scores, static_cast<int64_t>(call.n_tokens) * call.op.n_experts, out->scores);
}

void count_statistics(const FfnCall& call) {
  if (!call.counts()) return;
  for (int32_t t = 0; t < call.n_tokens; ++t) {
    RoutingStats* const stats = call.stats_of_token(t);
    if (stats == nullptr) continue;
    ++stats->n_tokens;
    const int64_t at = static_cast<int64_t>(t) * call.max_k;
    int32_t served = 0;
    for (int32_t j = 0; j < call.s.count[t]; ++j) {
      if (call.s.kept[at + j] == 0) continue;
      ++served;
      if (stats->tokens_per_expert != nullptr) ++stats->tokens_per_expert[call.s.expert[at + j]];
    }
    if (stats->experts_per_token != nullptr) ++stats->experts_per_token[served];
    stats->n_dropped += static_cast<uint64_t>(call.s.count[t] - served);
  }
}

// Checks the choices that a hook may have changed.
Status check_choices(const FfnCall& call, int32_t token) {
  const CpuStream& s = call.s;
  const int64_t at = static_cast<int64_t>(token) * call.max_k;
  const int32_t count = s.count[token];
  if (count < 1 || count > call.max_k) {
    return Status::error(MOE_ERR_RANGE, "routing of token %d: expected 1..%d experts, found %d",
                         token, call.max_k, count);
  }
  for (int32_t j = 0; j < count; ++j) {
    const int32_t expert = s.expert[at + j];
    if (expert < 0 || expert >= call.op.n_experts) {
      return Status::error(MOE_ERR_RANGE,
                           "routing of token %d: expected an expert in 0..%d, found %d", token,
                           call.op.n_experts - 1, expert);
    }
    if (std::find(s.expert + at, s.expert + at + j, expert) != s.expert + at + j) {
      return Status::error(MOE_ERR_ARGUMENT, "routing of token %d: expert %d is there twice", token,
                           expert);
    }
    if (!is_finite(s.weight[at + j])) {
      return Status::error(MOE_ERR_NON_FINITE, "routing of token %d: the weight of expert %d",
                           token, expert);
    }
  }
  return {};
}

// A token whose experts were changed has no probabilities: the hook's weights rank it.
void rank_changed(FfnCall& call, int32_t token, const int32_t* before, int32_t count) {
  CpuStream& s = call.s;
  const int64_t at = static_cast<int64_t>(token) * call.max_k;
  const int32_t n = s.count[token];
  if (n == count && std::equal(before + at, before + at + n, s.expert + at)) return;
  std::copy_n(s.weight + at, n, s.prob + at);
}

void call_hook(FfnCall& call, Routing routing) {
  const FfnOp& op = call.op;
  if (op.hook.call == nullptr) return;
  int32_t* const before = call.s.pair_token;  // free until the pairs are grouped
  int32_t* const counts = call.s.order;
  std::copy_n(call.s.expert, static_cast<int64_t>(call.n_tokens) * call.max_k, before);
  std::copy_n(call.s.count, call.n_tokens, counts);
  routing.kept = nullptr;
  if (router_info(op.router).scores == RouterScores::kTable) routing.scores = nullptr;
  const int32_t position = op.rows == nullptr ? 0 : op.rows[0].position;
  op.hook.call(op.hook.user, {op.layer, position, call.d_in, call.router_x}, &routing);
  for (int32_t t = 0; t < call.n_tokens; ++t) {
    const Status status = check_choices(call, t);
    if (!status.ok()) return call.s.latch(status);
    rank_changed(call, t, before, counts[t]);
    const int64_t at = static_cast<int64_t>(t) * call.max_k;
    for (int32_t j = 0; j < call.max_k; ++j) call.s.kept[at + j] = j < call.s.count[t];
  }
}

}  // namespace

void route_layer(FfnCall& call) {
  compute_scores(call);
  if (!call.s.live()) return;
  Routing routing = routing_of(call);
  RouteOp route;
  route.config = &call.op.router;
  route.scores = call.s.scores;
  route.selection_bias = call.op.router_weights.selection_bias;
  route.table_entry = call.s.table_entry;
  route.n_experts = call.op.n_experts;
  route.out = &routing;
  route.prob = call.s.prob;
  choose(call, route);
  if (!call.s.live()) return;
  call_hook(call, routing);
  if (!call.s.live()) return;
  limit_capacity(call, route);
  skip_missing(call);
  report(call);
  count_statistics(call);
}

void group_pairs(FfnCall& call) {
  CpuStream& s = call.s;
  const int32_t n_experts = call.op.n_experts;
  std::fill(s.pair_begin, s.pair_begin + n_experts + 1, 0);
  for (int pass = 0; pass < 2; ++pass) {
    for (int32_t t = 0; t < call.n_tokens; ++t) {
      const int64_t at = static_cast<int64_t>(t) * call.max_k;
      for (int32_t j = 0; j < s.count[t]; ++j) {
        if (s.kept[at + j] == 0) continue;
        int32_t& place = s.pair_begin[s.expert[at + j]];
        if (pass == 1) {
          s.pair_token[place] = t;
          const float* scale = call.op.expert_scale;
          s.pair_weight[place] =
              s.weight[at + j] * (scale == nullptr ? 1 : scale[s.expert[at + j]]);
        }
        ++place;
      }
    }
    // After the first pass counts become beginnings; after the second, ends become beginnings.
    int32_t before = 0;
    for (int32_t e = 0; e <= n_experts; ++e) {
      const int32_t here = s.pair_begin[e];
      s.pair_begin[e] = before;
      before = pass == 0 ? before + here : here;
    }
  }
}

}  // namespace moe
