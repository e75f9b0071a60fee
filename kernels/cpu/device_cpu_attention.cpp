#include <algorithm>

#include "kernels/cpu/device_cpu_impl.h"

namespace moe {
namespace {

void norm_heads(const CpuKernels& k, QkNorm kind, const Norm& norm, float* x, int32_t n_heads,
                int32_t head_dim) {
  if (kind == QkNorm::kWhole) k.norm_row(norm, x, n_heads * head_dim, x);
  if (kind != QkNorm::kHead) return;
  for (int32_t h = 0; h < n_heads; ++h)
    k.norm_row(norm, x + h * head_dim, head_dim, x + h * head_dim);
}

// Turns the first rope_dims of every head; `row`: (rope_dims / 2, {cos, sin}) of the position.
void rotate(const AttentionOp& op, const float* row, float* x, int32_t n_heads) {
  const int32_t half = op.rope_dims / 2;
  const bool interleaved = op.rope == RopeKind::kInterleaved;
  const int32_t stride = interleaved ? 2 : 1;
  const int32_t other = interleaved ? 1 : half;
  for (int32_t h = 0; h < n_heads; ++h) {
    float* v = x + h * op.head_dim;
    for (int32_t j = 0; j < half; ++j) {
      const float c = row[2 * j];
      const float s = row[2 * j + 1];
      const float a = v[j * stride];
      const float b = v[j * stride + other];
      v[j * stride] = a * c - b * s;
      v[j * stride + other] = b * c + a * s;
    }
  }
}

void store_kv(const CpuKernels& kernels, const KvCacheView& cache, void* to, float* scales,
              int32_t kv_head, int32_t position, const float* x, int32_t head_dim) {
  const int64_t at = static_cast<int64_t>(kv_head) * cache.capacity + position;
  if (cache.type == KvType::kF16) {
    kernels.round_f16(x, head_dim, static_cast<uint16_t*>(to) + at * head_dim);
  } else {
    scales[at] = kernels.round_int8(x, head_dim, static_cast<int8_t*>(to) + at * head_dim);
  }
}

void prepare_row(const CpuKernels& kernels, const AttentionOp& op, int64_t r) {
  const BatchRow& row = op.rows[r];
  float* q = op.q + r * op.n_heads * op.head_dim;
  float* k = op.k + r * op.n_kv_heads * op.head_dim;
  const float* v = op.v + r * op.n_kv_heads * op.head_dim;
  norm_heads(kernels, op.qk_norm, op.q_norm, q, op.n_heads, op.head_dim);
  norm_heads(kernels, op.qk_norm, op.k_norm, k, op.n_kv_heads, op.head_dim);
  if (op.rope != RopeKind::kNone) {
    const float* angles = op.rope_table + static_cast<int64_t>(row.position) * op.rope_dims;
    rotate(op, angles, q, op.n_heads);
    rotate(op, angles, k, op.n_kv_heads);
  }
  const KvCacheView& cache = op.caches[row.session];
  for (int32_t h = 0; h < op.n_kv_heads; ++h) {
    store_kv(kernels, cache, cache.layer.k, cache.layer.k_scale, h, row.position,
             k + h * op.head_dim, op.head_dim);
    store_kv(kernels, cache, cache.layer.v, cache.layer.v_scale, h, row.position,
             v + h * op.head_dim, op.head_dim);
  }
}

void attend_one(const CpuKernels& kernels, const AttentionOp& op, int64_t r, int32_t head) {
  const BatchRow& row = op.rows[r];
  const KvCacheView& cache = op.caches[row.session];
  const int64_t kv_head = head / (op.n_heads / op.n_kv_heads);
  const int64_t at = kv_head * cache.capacity;
  const size_t element = cache.type == KvType::kF16 ? sizeof(uint16_t) : sizeof(int8_t);
  const size_t offset = static_cast<size_t>(at) * static_cast<size_t>(op.head_dim) * element;
  const int64_t place = (r * op.n_heads + head) * op.head_dim;
  AttentionHead a;
  a.q = op.q + place;
  a.out = op.out + place;
  a.head_dim = op.head_dim;
  a.type = cache.type;
  a.k = static_cast<const uint8_t*>(cache.layer.k) + offset;
  a.v = static_cast<const uint8_t*>(cache.layer.v) + offset;
  if (cache.type == KvType::kInt8) {
    a.k_scale = cache.layer.k_scale + at;
    a.v_scale = cache.layer.v_scale + at;
  }
  a.last = row.position + 1;
  a.first = op.window > 0 ? std::max(0, a.last - op.window) : 0;
  a.multiplier = op.multiplier;
  a.sink = op.sinks != nullptr ? op.sinks + head : nullptr;
  kernels.attention_head(a);
}

}  // namespace

void cpu_attention(const CpuRuntime& rt, const AttentionOp& op) {
  const int64_t width = int64_t{op.n_heads + 2 * op.n_kv_heads} * op.head_dim;
  rt.for_range(op.n_rows, 4 * width, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) prepare_row(rt.kernels, op, r);
  });
  // Head by head: the threads get equal shares of short and long rows.
  const int64_t items = static_cast<int64_t>(op.n_rows) * op.n_heads;
  const int64_t last = op.rows[op.n_rows - 1].position + 1;
  const int64_t seen = op.window > 0 ? std::min<int64_t>(op.window, last) : last;
  rt.for_range(items, 2 * seen * op.head_dim, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      attend_one(rt.kernels, op, i % op.n_rows, static_cast<int32_t>(i / op.n_rows));
    }
  });
}

}  // namespace moe
