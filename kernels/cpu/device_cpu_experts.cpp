// SPDX-License-Identifier: MIT
// Computes several experts at once on the CPU: gate and up, activation, then the down projection
// with the weighted sum over experts; stacks of sub-layers too.
#include <algorithm>

#include "kernels/cpu/device_cpu_ffn.h"

namespace moe {
namespace {

int32_t end_row(const Segment* segments, int32_t n) {
  return segments[n - 1].first + segments[n - 1].n;
}

// Calls f(segment, row within it) for every row of the segments, in parallel; `work` per row.
template <class F>
void for_rows(const FfnCall& call, const Segment* segments, int32_t n, int64_t work, F&& f) {
  const int32_t rows = end_row(segments, n);
  call.rt.for_range(rows, work, [&](int64_t begin, int64_t end, int thread) {
    for (int32_t i = 0; i < n; ++i) {
      const Segment& segment = segments[i];
      const int64_t first = std::max<int64_t>(begin - segment.first, 0);
      const int64_t last = std::min<int64_t>(end - segment.first, segment.n);
      for (int64_t r = first; r < last; ++r) f(i, static_cast<int32_t>(r), thread);
    }
  });
}

void quantise_rows(const FfnCall& call, const Segment* segments, int32_t n,
                   const LinearInput* inputs) {
  bool any = false;
  for (int32_t i = 0; i < n; ++i) any = any || inputs[i].act != ActPrecision::kF32;
  if (!any) return;
  for_rows(call, segments, n, 4 * inputs[0].n_cols, [&](int32_t i, int32_t r, int) {
    if (inputs[i].act != ActPrecision::kF32) call.rt.kernels.quantise_rows(inputs[i], r, r + 1);
  });
}

// The inner matrices that a region computes: both if they read the same input.
enum class Inner { kGate, kUp, kBoth };

LinearArgs inner_args(const FfnCall& call, const Segment& segment, const Ffn& ffn, bool gate) {
  const Matrix& m = gate ? ffn.gate : ffn.up;
  float* y = (gate ? call.s.gate : call.s.up) + static_cast<int64_t>(segment.first) * m.rows;
  return {&m, nullptr, gate ? ffn.gate_bias : ffn.up_bias, y, m.rows, false, 1, 0, 0};
}

// True if the file interleaves the tiles of gate and up.
bool alternate(const Matrix& gate, const Matrix& up) {
  return gate.format == up.format && gate.rows == up.rows && gate.cols == up.cols &&
         gate.scale_kind == up.scale_kind && gate.group == up.group &&
         gate.tile_stride == up.tile_stride && gate.tiles < up.tiles &&
         up.tiles < gate.tiles + gate.tile_stride;
}

// s.gate and s.up = rows times the matrices, for all segments in one region.
void project(FfnCall& call, const Segment* segments, int32_t n, int32_t sublayer, const float* x,
             Inner which) {
  LinearInput inputs[kWaveExperts];
  LinearJob jobs[2 * kWaveExperts];
  int32_t n_jobs = 0;
  for (int32_t i = 0; i < n; ++i) {
    const Segment& segment = segments[i];
    const Ffn& ffn = segment.expert.ffn[sublayer];
    const Matrix& m = which == Inner::kGate ? ffn.gate : ffn.up;
    const bool own = x == nullptr;
    const int64_t first = segment.first;
    const float* from = own ? segment.x : x + first * m.cols;
    int64_t ld_from = own ? segment.ld_x : m.cols;
    if (m.rotation != nullptr) {  // of a dense network, whose rows are in order
      float* const rotated = call.s.stack + first * m.cols;
      call.rt.rotate_rows(*m.rotation, from, ld_from, segment.n, m.cols, rotated);
      from = rotated;
      ld_from = m.cols;
    }
    inputs[i] = call.rt.make_input(call.s, m.act, from, ld_from, own ? segment.tokens : nullptr,
                                   segment.n, m.cols, first);
    const LinearArgs gate = inner_args(call, segment, ffn, true);
    const LinearArgs up = inner_args(call, segment, ffn, false);
    if (which == Inner::kBoth && alternate(ffn.gate, ffn.up)) {
      jobs[n_jobs++] = {gate, inputs[i], up};
      continue;
    }
    if (which != Inner::kUp) jobs[n_jobs++] = {gate, inputs[i], {}};
    if (which != Inner::kGate) jobs[n_jobs++] = {up, inputs[i], {}};
  }
  quantise_rows(call, segments, n, inputs);
  call.rt.run_jobs(jobs, n_jobs);
}

// One matrix alone, of a norm of its own of a dense network's input.
void project_normed(FfnCall& call, const Segment* segments, int32_t n, const Norm& norm,
                    Inner which) {
  for_rows(call, segments, n, 4 * call.d_in, [&](int32_t i, int32_t r, int) {
    const Segment& s = segments[i];
    call.rt.kernels.norm_row(norm, s.x + r * s.ld_x, call.d_in,
                             call.s.stack + int64_t{s.first + r} * call.d_in);
  });
  project(call, segments, n, 0, call.s.stack, which);
}

// Gate and up may be stored for different activation precisions.
void project_inner(FfnCall& call, const Segment* segments, int32_t n, int32_t sublayer,
                   const float* x) {
  bool gated = false;
  bool alike = true;
  if (call.op.up_in_norm.kind != NormKind::kNone) {
    if (!segments[0].expert.ffn->gate.empty()) {
      project_normed(call, segments, n, call.op.gate_in_norm, Inner::kGate);
    }
    return project_normed(call, segments, n, call.op.up_in_norm, Inner::kUp);
  }
  for (int32_t i = 0; i < n; ++i) {
    const Ffn& ffn = segments[i].expert.ffn[sublayer];
    gated = gated || !ffn.gate.empty();
    alike = alike && ffn.gate.act == ffn.up.act && ffn.gate.rotation == ffn.up.rotation;
  }
  if (gated && alike) return project(call, segments, n, sublayer, x, Inner::kBoth);
  if (gated) project(call, segments, n, sublayer, x, Inner::kGate);
  if (call.s.live()) project(call, segments, n, sublayer, x, Inner::kUp);
}

// Calls f(first column, columns, first tile, end of tiles) for all columns of an output, in
// parallel.
template <class F>
void for_columns(const FfnCall& call, int64_t work, F&& f) {
  const int32_t d = call.d_in;
  call.rt.for_range((d + kTileRows - 1) / kTileRows, work, [&](int64_t begin, int64_t end, int) {
    const int64_t column = begin * kTileRows;
    f(column, static_cast<int32_t>(std::min<int64_t>(d, end * kTileRows) - column), begin, end);
  });
}

// The down projection fused with y[token] = fma(weight, out, y[token]): each thread owns a range of
// columns and processes the experts in order.
void project_down(FfnCall& call, const Segment* segments, int32_t n, bool combine) {
  CpuStream& s = call.s;
  LinearInput inputs[kWaveExperts];
  down_inputs(call, segments, n, 0, inputs);
  for (int32_t i = 0; i < n && call.rt.watcher != nullptr; ++i) {
    call.rt.watcher->see(segments[i].expert.ffn[0].down, inputs[i]);
  }
  const int32_t d = call.d_in;
  const int64_t work = int64_t{end_row(segments, n)} * inputs[0].n_cols * kTileRows;
  for_columns(call, work, [&](int64_t column, int32_t width, int64_t begin, int64_t end) {
    for (int32_t i = 0; i < n; ++i) {
      const Segment& segment = segments[i];
      const Ffn& ffn = segment.expert.ffn[0];
      float* out = s.out + static_cast<int64_t>(segment.out) * d;
      call.rt.kernels.linear({&ffn.down, &inputs[i], ffn.down_bias, out, d, false, 1, begin, end});
      for (int32_t r = 0; combine && r < segment.n; ++r) {
        call.rt.kernels.add_scaled(segment.weights[r], out + r * int64_t{d} + column, width,
                                   s.routed + segment.tokens[r] * int64_t{d} + column);
      }
    }
  });
}

// out = out - x and, with `combine`, y[token] = fma(weight, out, y[token]): each thread owns a
// range of columns and processes the experts in order.
void add_stacks(FfnCall& call, const Segment* segments, int32_t n, bool combine) {
  CpuStream& s = call.s;
  const int64_t d = call.d_in;
  const int64_t work = int64_t{end_row(segments, n)} * kTileRows;
  for_columns(call, work, [&](int64_t column, int32_t width, int64_t, int64_t) {
    for (int32_t i = 0; i < n; ++i) {
      const Segment& segment = segments[i];
      for (int32_t r = 0; r < segment.n; ++r) {
        float* v = s.out + (segment.out + r) * d + column;
        const float* x = segment.x + segment.tokens[r] * segment.ld_x + column;
        for (int32_t c = 0; c < width; ++c) v[c] -= x[c];
        if (!combine) continue;
        call.rt.kernels.add_scaled(segment.weights[r], v, width,
                                   s.routed + segment.tokens[r] * d + column);
      }
    }
  });
}

// X-MoE: v = x; v = v + FFN(norm(v)) for each sub-layer; y = fma(weight, v - x, y).
void run_stack(FfnCall& call, const Segment* segments, int32_t n, bool combine) {
  CpuStream& s = call.s;
  const int32_t d = call.d_in;
  const auto row_of = [&](int32_t i, int32_t r) {
    return static_cast<int64_t>(segments[i].out + r) * d;
  };
  const auto normed_row = [&](int32_t i, int32_t r) {
    return static_cast<int64_t>(segments[i].first + r) * d;
  };
  const auto input_of = [&](int32_t i, int32_t r) {
    return segments[i].x + segments[i].tokens[r] * segments[i].ld_x;
  };
  for_rows(call, segments, n, d, [&](int32_t i, int32_t r, int) {
    std::copy_n(input_of(i, r), d, s.out + row_of(i, r));
  });
  for (int32_t layer = 0; layer < segments[0].expert.n_sublayers && s.live(); ++layer) {
    for_rows(call, segments, n, 4 * d, [&](int32_t i, int32_t r, int) {
      call.rt.kernels.norm_row(segments[i].expert.ffn[layer].in_norm, s.out + row_of(i, r), d,
                               s.stack + normed_row(i, r));
    });
    inner_activations(call, segments, n, layer, s.stack);
    LinearInput inputs[kWaveExperts];
    LinearJob jobs[kWaveExperts];
    down_inputs(call, segments, n, layer, inputs);
    for (int32_t i = 0; i < n; ++i) {
      const Ffn& ffn = segments[i].expert.ffn[layer];
      jobs[i].input = inputs[i];
      jobs[i].args = {&ffn.down, nullptr, ffn.down_bias, s.out + row_of(i, 0), d, true, 1, 0, 0};
    }
    call.rt.run_jobs(jobs, n);
  }
  if (s.live()) add_stacks(call, segments, n, combine);
}

// Counts the rows' inner units, whose activations have been computed.
void count_activations(const FfnCall& call, const Segment& segment, int32_t sublayer) {
  const auto d_ff = static_cast<uint64_t>(segment.expert.ffn[sublayer].up.rows);
  for (int32_t r = 0; r < segment.n; ++r) {
    RoutingStats* const stats = segment.tokens == nullptr ? call.stats_of_row(segment.row + r)
                                                          : call.stats_of_token(segment.tokens[r]);
    if (stats == nullptr) continue;
    stats->n_positive += call.s.positive[segment.first + r];
    stats->n_activations += d_ff;
  }
}

}  // namespace

void inner_activations(FfnCall& call, const Segment* segments, int32_t n, int32_t sublayer,
                       const float* x) {
  CpuStream& s = call.s;
  const bool gated = !segments[0].expert.ffn[sublayer].gate.empty();
  project_inner(call, segments, n, sublayer, x);
  if (!s.live()) return;
  const int64_t work = int64_t{16} * segments[0].expert.ffn[sublayer].up.rows;
  for_rows(call, segments, n, work, [&](int32_t i, int32_t r, int) {
    const Ffn& ffn = segments[i].expert.ffn[sublayer];
    const int32_t d_ff = ffn.up.rows;
    const int64_t at = static_cast<int64_t>(segments[i].first + r) * d_ff;
    s.positive[segments[i].first + r] = call.rt.kernels.activation(
        call.op.act, gated ? s.gate + at : nullptr, s.up + at, d_ff, s.gate + at);
    call.rt.kernels.norm_row(ffn.sub_norm, s.gate + at, d_ff, s.gate + at);
  });
  if (!call.counts() || (call.op.n_experts > 0 && segments[0].weights == nullptr)) return;
  for (int32_t i = 0; i < n; ++i) count_activations(call, segments[i], sublayer);
}

void down_inputs(FfnCall& call, const Segment* segments, int32_t n, int32_t sublayer,
                 LinearInput* inputs) {
  for (int32_t i = 0; i < n; ++i) {
    const Matrix& down = segments[i].expert.ffn[sublayer].down;
    const int64_t first = segments[i].first;
    float* const x = call.s.gate + first * down.cols;
    if (down.rotation != nullptr) {
      call.rt.rotate_rows(*down.rotation, x, down.cols, segments[i].n, down.cols, x);
    }
    inputs[i] = call.rt.make_input(call.s, down.act, x, down.cols, nullptr, segments[i].n,
                                   down.cols, first);
  }
  quantise_rows(call, segments, n, inputs);
}

void compute_experts(FfnCall& call, const Segment* segments, int32_t n, bool combine) {
  if (segments[0].expert.n_sublayers > 0) return run_stack(call, segments, n, combine);
  inner_activations(call, segments, n, 0, nullptr);
  if (call.s.live()) project_down(call, segments, n, combine);
}

void combine_pairs(FfnCall& call) {
  const CpuStream& s = call.s;
  const int64_t d = call.d_in;
  const int32_t n_pairs = s.pair_begin[call.op.n_experts];
  for_columns(call, n_pairs * kTileRows, [&](int64_t column, int32_t width, int64_t, int64_t) {
    for (int32_t p = 0; p < n_pairs; ++p) {
      call.rt.kernels.add_scaled(s.pair_weight[p], s.out + p * d + column, width,
                                 s.routed + s.pair_token[p] * d + column);
    }
  });
}

}  // namespace moe
