// SPDX-License-Identifier: MIT
#pragma once
// The steps of one feed-forward part, routed or dense, on the CPU; see FfnOp.

#include "kernels/cpu/device_cpu_impl.h"

namespace moe {

/// State of one Device::ffn call.
struct FfnCall {
  const CpuRuntime& rt;
  CpuStream& s;
  const FfnOp& op;
  const float* x = nullptr;         // (n_rows, d_model) after the norm
  const float* subs = nullptr;      // (n_tokens, d_in): the routed (sub-)tokens
  const float* router_x = nullptr;  // the same, as the router reads them
  int32_t d_in = 0;                 // d_model / n_subheads
  int32_t n_tokens = 0;             // n_rows * n_subheads
  int32_t max_k = 0;
  const float* shared = nullptr;  // (n_rows, d_model): output of the shared expert; null: later

  bool counts() const { return op.stats != nullptr || op.session_stats != nullptr; }
  /// Where a row, or a (sub-)token, is counted; null: nowhere.
  RoutingStats* stats_of_row(int32_t row) const {
    return op.session_stats == nullptr ? op.stats : op.session_stats[op.rows[row].session];
  }
  RoutingStats* stats_of_token(int32_t token) const { return stats_of_row(token / op.n_subheads); }
};

/// One expert (or the shared one) on some rows, within a chunk of at most pair_chunk rows.
struct Segment {
  Expert expert;
  int32_t index = 0;  // of the expert
  int32_t first = 0;  // first row of the chunk's buffers
  int32_t out = 0;    // first row of s.out
  int32_t n = 0;
  const float* x = nullptr;  // (.., ld_x)
  int64_t ld_x = 0;
  const int32_t* tokens = nullptr;  // row i of the segment is row tokens[i] of x; null: row i
  const float* weights = nullptr;   // of row i in the sum
  int32_t row = 0;                  // without tokens: the first row of the call
};

/// Scores, selection, capacity: fills the stream's routing arrays. Latches a fault.
void route_layer(FfnCall& call);

/// Refuses pairs whose experts are not in memory, as RouterConfig::resident says: sets kept and
/// weight to 0.
void skip_missing(FfnCall& call);

/// Groups the active pairs by expert (pair_begin, pair_token, pair_weight) and updates statistics.
void group_pairs(FfnCall& call);

/// s.routed = sum over the active pairs of weight * expert(token), in ascending expert index.
void run_experts(FfnCall& call);

/// Computes the shared expert into s.out from row `first` on, and sets call.shared. The rows up to
/// first + n_rows must be within the chunk.
void compute_shared(FfnCall& call, int32_t first);

/// Rows of s.out = the experts' outputs; with `combine`, they are added to s.routed in this order.
void compute_experts(FfnCall& call, const Segment* segments, int32_t n, bool combine);
/// Adds all outputs to s.routed: pair i is in row i of s.out.
void combine_pairs(FfnCall& call);

/// For each segment, rows of s.gate (n, d_ff): the inner activations of `ffn` with SubLN. A
/// non-null `x` replaces the segment's own input: (chunk rows, d_in). Counts positives.
void inner_activations(FfnCall& call, const Segment* segments, int32_t n, int32_t sublayer,
                       const float* x);

/// Inputs for the down projections of all segments, quantised from s.gate.
void down_inputs(FfnCall& call, const Segment* segments, int32_t n, int32_t sublayer,
                 LinearInput* inputs);

}  // namespace moe
