// SPDX-License-Identifier: MIT
// Attention on the latent of keys and values (DeepSeek-V2, Liu et al. 2024, section 2.1): the
// up-projections are applied to queries and to attention outputs instead of to every key and value.

#include <algorithm>

#include "kernels/cpu/device_cpu_impl.h"

namespace moe {
namespace {

int32_t row_width(const AttentionOp& op) { return op.rope_dims + op.latent->width; }

void turn(const CpuRuntime& rt, const AttentionOp& op, int64_t r, float* x, int32_t n, int32_t d) {
  if (op.rope == RopeKind::kNone) return;
  const float* angles = op.rope_table + int64_t{op.rows[r].position} * op.rope_dims;
  rt.kernels.rotate(angles, op.rope_dims, op.rope == RopeKind::kInterleaved, x, n, d);
}

void store_key(const CpuRuntime& rt, const AttentionOp& op, int64_t r, float* key) {
  const LatentHeads& l = *op.latent;
  const int32_t width = row_width(op);
  const float* z = l.z + r * width;
  std::copy_n(z + l.width, op.rope_dims, key);
  rt.kernels.norm_row(l.norm, z, l.width, key + op.rope_dims);
  turn(rt, op, r, key, 1, width);
  const BatchRow& row = op.rows[r];
  auto* cache = static_cast<uint16_t*>(op.caches[row.session].layer.k);
  rt.kernels.round_f16(key, width, 1, cache + int64_t{row.position} * width);
}

// Rotates the rotary part of a row's queries, and puts it in front of the queries in the latent.
void turn_queries(const CpuRuntime& rt, const AttentionOp& op, int64_t r, float* latent_q) {
  float* q = op.q + r * op.n_heads * op.head_dim;
  turn(rt, op, r, q, op.n_heads, op.head_dim);
  for (int32_t h = 0; h < op.n_heads; ++h) {
    std::copy_n(q + int64_t{h} * op.head_dim, op.rope_dims, latent_q + int64_t{h} * row_width(op));
  }
}

/// For each head and row: y = W x, with W the matrix of the head's KV head.
struct HeadProducts {
  const Matrix* weights;
  const float* x;
  int64_t x_head;  // floats between heads; rows hold all heads
  float* y;
  int64_t y_head;
};

void multiply(const CpuRuntime& rt, const AttentionOp& op, const HeadProducts& p, int32_t n_rows) {
  const Matrix& first = p.weights[0];
  const int64_t tiles = (first.rows + kTileRows - 1) / kTileRows;
  const int64_t work = int64_t{kTileRows} * first.cols * n_rows;
  rt.for_range(op.n_heads * tiles, work, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end;) {
      const int64_t head = i / tiles, stop = std::min(end, (head + 1) * tiles);
      LinearInput input;
      input.n_rows = n_rows;
      input.n_cols = first.cols;
      input.x = p.x + head * p.x_head;
      input.ld_x = op.n_heads * p.x_head;
      LinearArgs args;
      args.weight = &p.weights[head * op.n_kv_heads / op.n_heads];
      args.input = &input;
      args.y = p.y + head * p.y_head;
      args.ld_y = op.n_heads * p.y_head;
      args.tile_begin = i - head * tiles;
      args.tile_end = stop - head * tiles;
      rt.kernels.linear(args);
      i = stop;
    }
  });
}

void fill_behind_values(const AttentionOp& op, int32_t first, int32_t n) {
  const int32_t d = op.head_dim, n_values = op.latent->values[0].rows;
  if (n_values == d) return;
  float* head = op.out + int64_t{first} * op.n_heads * d;
  for (int32_t i = 0; i < n * op.n_heads; ++i, head += d) {
    std::fill_n(head + n_values, d - n_values, 0.0f);
  }
}

// Rows [first, first + n) of the operation. Earlier keys are in the cache.
void attend_rows(const CpuRuntime& rt, const AttentionOp& op, int32_t first, int32_t n) {
  const LatentHeads& l = *op.latent;
  const int32_t d = op.head_dim, width = row_width(op);
  rt.for_range(n, int64_t{4} * op.n_heads * d, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      store_key(rt, op, first + i, l.key + i * width);
      turn_queries(rt, op, first + i, l.q + i * op.n_heads * width);
    }
  });
  const int64_t at = int64_t{first} * op.n_heads * d;
  multiply(rt, op, {l.keys, op.q + at + op.rope_dims, d, l.q + op.rope_dims, width}, n);
  AttentionOp mqa = op;
  mqa.n_rows = n;
  mqa.rows = op.rows + first;
  mqa.q = l.q;
  mqa.out = l.out;
  mqa.n_kv_heads = 1;
  mqa.head_dim = width;
  cpu_attend_latent(rt, mqa);
  multiply(rt, op, {l.values, l.out, l.width, op.out + at, d}, n);
  fill_behind_values(op, first, n);
}

}  // namespace

void cpu_latent_attention(const CpuRuntime& rt, const AttentionOp& op) {
  const int32_t most = op.latent->max_rows;
  for (int32_t first = 0; first < op.n_rows; first += most) {
    attend_rows(rt, op, first, std::min(most, op.n_rows - first));
  }
}

}  // namespace moe
