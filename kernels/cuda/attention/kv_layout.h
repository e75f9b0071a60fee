// SPDX-License-Identifier: MIT
#pragma once
// Layout of keys and values in the cache of a CUDA device (struct KvLayer).
//
// V: (kv head, position, dimension). Threads own dimensions and read consecutive positions. K: (kv
// head, position / 32, unit, position % 32, dimension % unit size): units of 16 bytes, 8 halves, 16
// codes or 4 floats. Lanes own positions, so that a warp reads 512 consecutive bytes and each lane
// has a whole key. A last unit of fewer dimensions is not padded.

#include "kernels/device.h"
#include "kernels/math.h"

namespace moe::cuda {

inline constexpr int kKeyRun = 32;  // positions with consecutive units

MOE_HD int key_unit(KvType type) {
  return type == KvType::kF16 ? 8 : type == KvType::kF32 ? 4 : 16;
}

/// Offset of element (position, dimension) in a KV head.
MOE_HD int64_t key_place(KvType type, int32_t head_dim, int32_t position, int32_t dim) {
  const int32_t unit = key_unit(type);
  const int32_t begin = dim / unit * unit;
  const int32_t width = head_dim - begin < unit ? head_dim - begin : unit;
  return int64_t{position / kKeyRun} * kKeyRun * head_dim + int64_t{begin} * kKeyRun +
         position % kKeyRun * width + (dim - begin);
}

MOE_HD int64_t value_place(int32_t head_dim, int32_t position, int32_t dim) {
  return int64_t{position} * head_dim + dim;
}

/// Offset of a KV head in the caches.
MOE_HD int64_t head_place(const KvCacheView& cache, int32_t kv_head, int32_t head_dim) {
  return int64_t{kv_head} * cache.capacity * head_dim;
}

/// The positions visible to a row.
struct KeyRange {
  int32_t first;
  int32_t last;  // its own position
};
MOE_HD KeyRange visible_keys(int32_t position, int32_t window) {
  const int32_t first = window > 0 && position >= window ? position - window + 1 : 0;
  return {first, position};
}

}  // namespace moe::cuda
