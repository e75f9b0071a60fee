// SPDX-License-Identifier: MIT
// Attention on the CPU: norms, clips and rotates queries and keys, stores keys and values, and
// shares tiles of queries between threads.
#include <algorithm>

#include "kernels/cpu/device_cpu_impl.h"

namespace moe {
namespace {

constexpr int64_t kStoreWork = 64;  // cost of storing a key element, in multiplications

// Element 0 of a position's row in `head`, and the stride of its elements: a key shares vectors
// with 15 neighbouring positions.
struct CachePlace {
  int64_t at;
  int stride;
};

CachePlace key_place(const KvCacheView& cache, int32_t head, int32_t position, int32_t head_dim) {
  const int64_t vectors =
      static_cast<int64_t>(head) * cache.capacity + position / kKeyLanes * kKeyLanes;
  return {vectors * head_dim + position % kKeyLanes, kKeyLanes};
}

CachePlace value_place(const KvCacheView& cache, int32_t head, int32_t position, int32_t head_dim) {
  return {(static_cast<int64_t>(head) * cache.capacity + position) * head_dim, 1};
}

void store_row(const CpuKernels& kernels, KvType type, const CachePlace& place, void* to,
               float* scales, int64_t scale, const float* x, int32_t head_dim) {
  if (type == KvType::kF16) {
    kernels.round_f16(x, head_dim, place.stride, static_cast<uint16_t*>(to) + place.at);
  } else if (type == KvType::kInt8) {
    scales[scale] =
        kernels.round_int8(x, head_dim, place.stride, static_cast<int8_t*>(to) + place.at);
  } else {
    float* out = static_cast<float*>(to) + place.at;
    for (int32_t i = 0; i < head_dim; ++i) out[int64_t{i} * place.stride] = x[i];
  }
}

// Another layer has stored the keys and values.
bool is_shared(const AttentionOp& op) { return op.k == nullptr && op.latent == nullptr; }

// Cross attention: the source's keys are already stored, and queries are ready.
bool is_cross(const AttentionOp& op) { return is_shared(op) && !op.causal; }

// Operations on whole rows, across heads.
void norm_whole(const CpuKernels& kernels, const AttentionOp& op, int64_t r) {
  if (op.qk_norm != QkNorm::kWhole) return;
  const int32_t q_width = op.n_heads * op.head_dim;
  const int32_t kv_width = op.n_kv_heads * op.head_dim;
  kernels.norm_row(op.q_norm, op.q + r * q_width, q_width, op.q + r * q_width);
  if (is_shared(op)) return;
  kernels.norm_row(op.k_norm, op.k + r * kv_width, kv_width, op.k + r * kv_width);
}

void clip_heads(const AttentionOp& op, float* x, int64_t n_heads) {
  for (int64_t i = 0; i < n_heads * op.head_dim; ++i) x[i] = clip_to(x[i], op.clip);
}

// Processes KV head h of row r and its group's queries: head norms, positions, the KV cache.
void prepare_head(const CpuKernels& kernels, const AttentionOp& op, int64_t r, int32_t h) {
  const BatchRow& row = op.rows[r];
  const int32_t d = op.head_dim;
  const int32_t group = op.n_heads / op.n_kv_heads;
  float* q = op.q == nullptr ? nullptr : op.q + (r * op.n_heads + int64_t{h} * group) * d;
  const int32_t n_kv = is_shared(op) ? 0 : 1;
  float* k = n_kv == 0 ? nullptr : op.k + (r * op.n_kv_heads + h) * d;
  float* v = n_kv == 0 ? nullptr : op.v + (r * op.n_kv_heads + h) * d;
  if (op.qk_norm == QkNorm::kHead) {
    for (int32_t i = 0; i < group; ++i) kernels.norm_row(op.q_norm, q + i * d, d, q + i * d);
    if (n_kv > 0) kernels.norm_row(op.k_norm, k, d, k);
  }
  if (op.clip < __builtin_inff()) {
    clip_heads(op, q, group);
    clip_heads(op, k, n_kv);
    clip_heads(op, v, n_kv);
  }
  if (op.rope != RopeKind::kNone) {
    const float* angles = op.rope_table + static_cast<int64_t>(row.position) * op.rope_dims;
    const bool neighbours = op.rope == RopeKind::kInterleaved;
    kernels.rotate(angles, op.rope_dims, neighbours, q, group, d);
    if (n_kv > 0) kernels.rotate(angles, op.rope_dims, neighbours, k, 1, d);
  }
  if (n_kv == 0) return;
  const KvCacheView& cache = op.caches[row.session];
  const KvLayer& to = cache.layer;
  const int64_t scale = int64_t{h} * cache.capacity + row.position;
  store_row(kernels, cache.type, key_place(cache, h, row.position, d), to.k, to.k_scale, scale, k,
            d);
  store_row(kernels, cache.type, value_place(cache, h, row.position, d), to.v, to.v_scale, scale, v,
            d);
}

// The last position of row r's session.
int32_t last_position(const AttentionOp& op, int64_t r) {
  while (r + 1 < op.n_rows && op.rows[r + 1].session == op.rows[r].session) ++r;
  return op.rows[r].position;
}

size_t element_bytes(KvType type) {
  if (type == KvType::kF32) return sizeof(float);
  return type == KvType::kF16 ? sizeof(uint16_t) : sizeof(int8_t);
}

// Attends queries [begin, end) of one KV head and session; query i is head i % group of its group
// in row i / group.
void attend_tile(const CpuKernels& kernels, const AttentionOp& op, int32_t kv_head, int64_t begin,
                 int64_t end) {
  const int32_t group = op.n_heads / op.n_kv_heads;
  const KvCacheView& cache = op.caches[op.rows[begin / group].session];
  const int64_t at = static_cast<int64_t>(kv_head) * cache.capacity;
  const size_t offset =
      static_cast<size_t>(at) * static_cast<size_t>(op.head_dim) * element_bytes(cache.type);
  const int32_t whole = is_cross(op) ? cache.n_keys
                        : op.causal  ? 0
                                     : last_position(op, begin / group) + 1;
  AttentionTile tile;
  tile.head_dim = op.head_dim;
  tile.type = cache.type;
  tile.k = static_cast<const uint8_t*>(cache.layer.k) + offset;
  tile.v = static_cast<const uint8_t*>(cache.layer.v) + offset;
  if (is_latent(cache.type)) {
    tile.latent_dim = op.latent->width;
    tile.v = static_cast<const uint16_t*>(tile.k) + (op.head_dim - tile.latent_dim);
  }
  if (cache.type == KvType::kInt8) {
    tile.k_scale = cache.layer.k_scale + at;
    tile.v_scale = cache.layer.v_scale + at;
  }
  tile.multiplier = op.multiplier;
  tile.cap = op.cap;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t head = int64_t{kv_head} * group + i % group;
    const int64_t place = i / group * op.n_heads + head;
    AttentionQuery& query = tile.queries[tile.n_queries++];
    query.q = op.q + place * op.head_dim;
    query.out = op.out + place * (is_latent(cache.type) ? tile.latent_dim : op.head_dim);
    query.last = whole > 0 ? whole : op.rows[i / group].position + 1;
    query.first = op.window > 0 ? std::max(0, query.last - op.window) : 0;
    if (whole > 0 && op.window > 0) {
      const int32_t position = op.rows[i / group].position, side = op.window / 2;
      query.first = std::max(0, position - side);
      query.last = std::min(whole, position + side + 1);
    }
    query.sink = op.sinks != nullptr ? op.sinks + head : nullptr;
  }
  kernels.attention(tile);
}

// Attends queries [begin, end), split at session boundaries.
void attend_range(const CpuKernels& kernels, const AttentionOp& op, int32_t kv_head, int64_t begin,
                  int64_t end) {
  const int32_t group = op.n_heads / op.n_kv_heads;
  while (begin < end) {
    const int32_t session = op.rows[begin / group].session;
    int64_t stop = begin + 1;
    while (stop < end && op.rows[stop / group].session == session) ++stop;
    attend_tile(kernels, op, kv_head, begin, stop);
    begin = stop;
  }
}

// The maximum number of keys that a row sees.
int64_t keys_seen(const AttentionOp& op) {
  int32_t seen = 1;
  for (int32_t r = 0; r < op.n_rows; ++r) {
    const BatchRow& row = op.rows[r];
    seen = std::max(seen, is_cross(op) ? op.caches[row.session].n_keys : row.position + 1);
  }
  return op.window > 0 ? std::min(op.window, seen) : seen;
}

/// The queries of a KV head, in tiles.
struct Tiling {
  int64_t queries;
  int64_t size;  // queries per tile
  int64_t n;
  int64_t work;
};

// Enough tiles for every thread, even if that makes them smaller.
Tiling tiling_of(const AttentionOp& op, int64_t wanted) {
  const int64_t queries = int64_t{op.n_rows} * (op.n_heads / op.n_kv_heads);
  const int64_t size = std::clamp<int64_t>(queries * op.n_kv_heads / wanted, 1, kMaxQueries);
  return {queries, size, (queries + size - 1) / size,
          2 * keys_seen(op) * op.head_dim * std::min(queries, size)};
}

// Tile i of all KV heads' tiles, in the order first, last, second, last but one ...: neighbouring
// pairs have the same number of keys, which balances the threads.
void attend_turn(const CpuKernels& kernels, const AttentionOp& op, const Tiling& t, int64_t i) {
  const int64_t turn = i % t.n;
  const int64_t first = t.size * (turn % 2 == 0 ? turn / 2 : t.n - 1 - turn / 2);
  attend_range(kernels, op, static_cast<int32_t>(i / t.n), first,
               std::min(t.queries, first + t.size));
}

}  // namespace

void cpu_attend_latent(const CpuRuntime& rt, const AttentionOp& op) {
  // Every tile reads all keys: make tiles no smaller than the threads need.
  const Tiling t = tiling_of(op, rt.pool.n_threads());
  rt.for_range(t.n, t.work, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) attend_turn(rt.kernels, op, t, i);
  });
}

void cpu_attention(const CpuRuntime& rt, const AttentionOp& op) {
  if (op.latent != nullptr) return cpu_latent_attention(rt, op);
  const Tiling t = tiling_of(op, 2 * rt.pool.n_threads());
  // a new key's lines are not cached: with one row each head's thread would wait for them
  const bool at_once = op.n_rows == 1 && t.n == 1 && op.q != nullptr && !is_cross(op);
  const int64_t width = int64_t{op.n_heads + 2 * op.n_kv_heads} * op.head_dim;
  const auto prepare = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      norm_whole(rt.kernels, op, r);
      for (int32_t h = 0; h < op.n_kv_heads && !at_once; ++h) prepare_head(rt.kernels, op, r, h);
    }
  };
  if (!is_cross(op)) rt.for_range(op.n_rows, 4 * width, prepare);
  if (op.q == nullptr) return;
  const int64_t work = t.work + (at_once ? kStoreWork * op.head_dim : 0);
  rt.for_range(op.n_kv_heads * t.n, work, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (at_once) prepare_head(rt.kernels, op, 0, static_cast<int32_t>(i));
      attend_turn(rt.kernels, op, t, i);
    }
  });
}

}  // namespace moe
