// SPDX-License-Identifier: MIT
// Matrix products on the CPU, shared between threads by tiles of weights; norms, caps and
// embeddings of rows.
#include <algorithm>

#include "kernels/cpu/device_cpu_impl.h"
#include "kernels/cpu/linear_input.h"
#include "kernels/hadamard.h"
#include "kernels/math.h"
#include "quant/formats.h"

namespace moe {
namespace {

constexpr int64_t kSharedRows = 3;   // rows up to which memory limits a product
constexpr int32_t kMaxJobs = 16;     // outputs of one LinearOp that share a region
constexpr int64_t kCapPiece = 4096;  // values that a thread caps at a time

int64_t n_tiles(const Matrix& m) { return (m.rows + kTileRows - 1) / kTileRows; }

// Rows times a tile: the work per tile of a job.
int64_t n_products(const LinearJob& job) {
  return int64_t{job.input.n_rows} * (job.paired.weight != nullptr ? 2 : 1);
}

// Converts a part of [0, total) work units to tiles of a job with `size` units from `start`.
Range tiles_in(const Range& part, int64_t start, int64_t unit, int64_t tiles) {
  // A tile belongs to the thread with its first unit.
  const auto first_from = [&](int64_t at) {
    const int64_t t = (at - start + unit - 1) / unit;
    return at <= start ? int64_t{0} : std::min(t, tiles);
  };
  return {first_from(part.begin), first_from(part.end)};
}

}  // namespace

void CpuRuntime::norm_rows(const Norm& norm, const float* x, int64_t ld_x, int64_t n, int32_t d,
                           float* y) const {
  for_range(n, int64_t{4} * d, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) kernels.norm_row(norm, x + r * ld_x, d, y + r * d);
  });
}

void CpuRuntime::rotate_rows(const InputRotation& rotation, const float* x, int64_t ld_x, int64_t n,
                             int32_t d, float* y) const {
  const int64_t block = rotation.block, per_row = d / block;
  const float scale = hadamard_scale(rotation.block);
  for_range(n * per_row, 16 * block, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t row = b / per_row, at = b % per_row * block;
      apply_signs(rotation, x + row * ld_x, at, at + block, y + row * d);
      kernels.hadamard(scale, rotation.block, y + row * d + at);
    }
  });
}

LinearInput CpuRuntime::make_input(CpuStream& s, ActPrecision act, const float* x, int64_t ld_x,
                                   const int32_t* row_ids, int32_t n, int32_t d,
                                   int64_t first) const {
  // n rows need at most n times the widest row's bytes.
  return make_linear_input(act, x, ld_x, n, d, row_ids, s.act + first * s.act_row_bytes);
}

void CpuRuntime::quantise(const LinearInput& input) const {
  if (input.act == ActPrecision::kF32) return;
  for_range(input.n_rows, int64_t{4} * input.n_cols, [&](int64_t begin, int64_t end, int) {
    kernels.quantise_rows(input, static_cast<int32_t>(begin), static_cast<int32_t>(end));
  });
}

void CpuRuntime::run_jobs(LinearJob* jobs, int32_t n_jobs) const {
  int64_t total = 0;
  int64_t work = 0;
  int64_t most_rows = 0;
  int64_t widest = 1;
  for (int32_t i = 0; i < n_jobs; ++i) {
    const Matrix& m = *jobs[i].args.weight;
    const int64_t unit = n_products(jobs[i]);
    jobs[i].args.input = jobs[i].paired.input = &jobs[i].input;
    most_rows = std::max<int64_t>(most_rows, jobs[i].input.n_rows);
    widest = std::max(widest, unit);
    total += n_tiles(m) * unit;
    work += unit * m.rows * m.cols;
    if (watcher == nullptr) continue;
    watcher->see(m, jobs[i].input);
    if (jobs[i].paired.weight != nullptr) watcher->see(*jobs[i].paired.weight, jobs[i].input);
  }
  if (total == 0) return;
  const auto run = [&](int64_t begin, int64_t end, int) {
    const Range part{begin, end};
    int64_t start = 0;
    for (int32_t i = 0; i < n_jobs; ++i) {
      LinearArgs args = jobs[i].args;
      LinearArgs paired = jobs[i].paired;
      const int64_t unit = n_products(jobs[i]);
      const int64_t tiles = n_tiles(*args.weight);
      const Range range = tiles_in(part, start, unit, tiles);
      start += tiles * unit;
      args.tile_begin = paired.tile_begin = range.begin;
      args.tile_end = paired.tile_end = range.end;
      if (paired.weight != nullptr) args.paired = &paired;
      if (range.begin < range.end) kernels.linear(args);
    }
  };
  if (most_rows <= kSharedRows)
    return share_range(total, work / total + 1, kTileGrain * widest, run);
  for_range(total, work / total + 1, run);
}

void CpuRuntime::linear(CpuStream& s, const Matrix& weight, const float* bias, const float* x,
                        int64_t ld_x, int32_t n, float* y, int64_t ld_y, bool accumulate,
                        float scale) const {
  LinearJob job;
  job.input = make_input(s, weight.act, x, ld_x, nullptr, n, weight.cols, 0);
  quantise(job.input);
  job.args.weight = &weight;
  job.args.bias = bias;
  job.args.y = y;
  job.args.ld_y = ld_y;
  job.args.accumulate = accumulate;
  job.args.scale = scale;
  run_jobs(&job, 1);
}

void cpu_norm(const CpuRuntime& rt, CpuStream& s, const NormOp& op) {
  float* const normed = op.accumulate ? s.normed : op.y;
  rt.for_range(op.n_rows, int64_t{4} * op.d, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      rt.kernels.norm_row(op.norm, op.x + r * op.d, op.d, normed + r * op.d);
      if (!op.accumulate) continue;
      rt.kernels.add_scaled(op.scale, normed + r * op.d, op.d, op.y + r * op.d);
    }
  });
}

namespace {

bool all_finite(const float* x, int n) {
  uint32_t any = 0;
  for (int i = 0; i < n; ++i) {
    // The carry of an exponent whose bits are all set.
    any |= (static_cast<uint32_t>(ScalarLanes::bits(x[i])) & 0x7f800000u) + 0x00800000u;
  }
  return (any & 0x80000000u) == 0;
}

}  // namespace

void cpu_cap(const CpuRuntime& rt, const CapOp& op) {
  const int64_t pieces = (int64_t{op.d} + kCapPiece - 1) / kCapPiece;
  rt.for_range(op.n_rows * pieces, int64_t{8} * kCapPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i % pieces * kCapPiece;
      const auto n = static_cast<int>(std::min<int64_t>(kCapPiece, op.d - at));
      float* const x = op.x + i / pieces * op.d + at;
      // tanh would hide an infinite logit, which is an error where it is read.
      if (all_finite(x, n)) rt.kernels.cap_row(op.limit, x, n);
    }
  });
}

void cpu_gate(const CpuRuntime& rt, const GateOp& op) {
  if (op.shared > 1) {
    const int64_t n = int64_t{op.n_rows} * (op.d / op.shared);
    return rt.for_range(n, int64_t{32} + op.shared, [&](int64_t begin, int64_t end, int) {
      for (int64_t g = begin; g < end; ++g) {
        const float open = sigmoid_float(op.gate[g]);
        for (int64_t i = g * op.shared; i < (g + 1) * op.shared; ++i) op.x[i] *= open;
      }
    });
  }
  rt.for_range(op.n_rows, int64_t{32} * op.d, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      rt.kernels.gate_row(op.gate + r * op.d, op.d, op.x + r * op.d);
    }
  });
}

void cpu_scale(const CpuRuntime& rt, const ScaleOp& op) {
  rt.for_range(op.n_rows, op.d, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin * op.d; i < end * op.d; ++i) op.x[i] *= op.factor;
  });
}

void cpu_activate(const CpuRuntime& rt, const ActivateOp& op) {
  rt.for_range(op.n_rows, int64_t{16} * op.d, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* const gate = op.gate + r * op.d;
      rt.kernels.activation(op.act, gate, op.up + r * op.ld_up, op.d, gate);
    }
  });
}

namespace {

// The row of a table, rotated back.
void look_up(const CpuRuntime& rt, const Matrix& table, int32_t row, float* out) {
  read_row(table, row, out);
  if (table.rotation == nullptr) return;
  const InputRotation& r = *table.rotation;
  for (int32_t i = 0; i < table.cols; i += r.block) {
    rt.kernels.hadamard(hadamard_scale(r.block), r.block, out + i);
  }
  apply_signs(r, out, 0, table.cols, out);
}

// The outputs of matrices with this rotation, which x has already.
void run_outs(const CpuRuntime& rt, CpuStream& s, const LinearOp& op, const float* x, int64_t ld_x,
              const InputRotation* rotation) {
  for (ActPrecision act :
       {ActPrecision::kF32, ActPrecision::kA8, ActPrecision::kA8Block, ActPrecision::kA8Group}) {
    LinearJob jobs[kMaxJobs];
    int32_t n_jobs = 0;
    const LinearInput input = rt.make_input(s, act, x, ld_x, nullptr, op.n_rows, op.d_in, 0);
    bool quantised = false;
    for (int32_t i = 0; i < op.n_outs; ++i) {
      const LinearOut& out = op.outs[i];
      if (out.weight->act != act || out.weight->rotation != rotation) continue;
      if (!quantised) rt.quantise(input);
      quantised = true;
      jobs[n_jobs++] = {
          {out.weight, nullptr, out.bias, out.y, out.ld_y, out.accumulate, out.scale}, input, {}};
      if (n_jobs == kMaxJobs) {
        rt.run_jobs(jobs, n_jobs);
        n_jobs = 0;
      }
    }
    if (n_jobs > 0) rt.run_jobs(jobs, n_jobs);
  }
}

}  // namespace

void cpu_linear(const CpuRuntime& rt, CpuStream& s, const LinearOp& op) {
  const float* x = op.x;
  int64_t ld_x = op.ld_x;
  if (op.norm.kind != NormKind::kNone) {
    rt.norm_rows(op.norm, op.x, op.ld_x, op.n_rows, op.d_in, s.normed);
    x = s.normed;
    ld_x = op.d_in;
  }
  run_outs(rt, s, op, x, ld_x, nullptr);
  // Matrices of one width have one rotation.
  const InputRotation* rotation = nullptr;
  for (int32_t i = 0; i < op.n_outs; ++i) {
    if (op.outs[i].weight->rotation != nullptr) rotation = op.outs[i].weight->rotation;
  }
  if (rotation == nullptr) return;
  rt.rotate_rows(*rotation, x, ld_x, op.n_rows, op.d_in, s.normed);
  run_outs(rt, s, op, s.normed, op.d_in, rotation);
}

void cpu_embed(const CpuRuntime& rt, CpuStream& s, const Matrix& table, const Matrix& positions,
               const BatchRow* rows, int32_t n_rows, float multiplier, float* x) {
  const int32_t d = table.cols;
  rt.for_range(n_rows, int64_t{4} * d, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* out = x + r * d;
      look_up(rt, table, rows[r].token, out);
      for (int32_t i = 0; i < d; ++i) out[i] *= multiplier;
      if (positions.empty()) continue;
      float* place = s.normed + r * d;
      read_row(positions, rows[r].position, place);
      for (int32_t i = 0; i < d; ++i) out[i] += place[i];
    }
  });
}

// Rows follow each other: the source has room for one at a time, and a disk is slower than this.
void cpu_embed_from(CpuStream& s, RowSource& table, int32_t d, const BatchRow* rows, int32_t n_rows,
                    float multiplier, float* x) {
  for (int32_t r = 0; r < n_rows && s.live(); ++r) {
    float* const out = x + int64_t{r} * d;
    s.latch(table.read(rows[r].token, out));
    for (int32_t i = 0; i < d && s.live(); ++i) out[i] *= multiplier;
  }
}

}  // namespace moe
