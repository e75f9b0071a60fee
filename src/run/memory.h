// SPDX-License-Identifier: MIT
#pragma once
// Memory needed by a session, computed before allocating.

#include "src/model/model.h"
#include "src/run/kv_cache.h"

namespace moe {

/// Options of a session. Zero means the default.
struct SessionOptions {
  int32_t context = 0;  // positions of the KV cache; 0: the model's context length, at most 4096
  int32_t chunk = 0;    // rows evaluated at once; 0: 256, on a GPU 1024; with an expert capacity or
                        // an encoder the context or the source, at most kMaxChunk; under a cap see
                        // resolve_options(); never more than the longer of the two
  KvType kv = KvType::kF16;
  int32_t max_beam = 0;  // hypotheses of an encoder-decoder's searches, 1..kMaxBeam; 0: 5
  int32_t source = 0;    // set by resolve_options(): maximum tokens of an encoder-decoder's source
  uint64_t memory_cap =
      0;  // bytes for the weights, other sessions and this one; 0: the model's cap
  uint64_t other_sessions_bytes =
      0;                       // memory of the model's other sessions; counts against the cap
  bool chunk_follows = false;  // set by resolve_options(): the chunk was not specified
};

/// True if the configuration of a decoder's layer allows caching the latent (KvType::kLatent).
inline bool can_keep_latent(const AttentionConfig& a) {
  return kLatentCaches && a.causal && a.latent > 0 && a.qk_norm == QkNorm::kNone &&
         a.qkv_clip == 0 && a.rope.dims < a.head_dim;
}

inline constexpr int32_t kDefaultContext = 4096;
inline constexpr int32_t kDefaultChunk = 256;
/// On a GPU with all weights resident, where GEMMs of 512 rows and more use cuBLASLt.
inline constexpr int32_t kDefaultDeviceChunk = 1024;
inline constexpr int32_t kMaxChunk = 4096;
inline constexpr int32_t kLeastChunk = 32;  // of automatic chunks
/// The memory of an automatic chunk may take at most 1/kShortChunkShare of what the cap leaves for
/// experts if it has at most kShortChunk tokens, and 1/kLongChunkShare if it has more.
inline constexpr int32_t kShortChunk = 512;
inline constexpr uint64_t kShortChunkShare = 6;
inline constexpr uint64_t kLongChunkShare = 16;
/// Rows of logits computed at once: on the CPU, and on a device that waits for every copy.
inline constexpr int32_t kLogitRows = 8;
inline constexpr int32_t kDeviceLogitRows = kMaxSampleRows;
/// The maximum, in the layers' scratch memory: enough to amortise reading the head's weights.
inline constexpr int32_t kLateLogitRows = 64;

/// Memory account of one model with one session.
struct MemoryAccount {
  static constexpr int32_t kMaxLines = 24;
  MemoryLine lines[kMaxLines] = {};
  int32_t n_lines = 0;
  uint64_t total = 0;          // sum of all lines
  uint64_t other_bytes = 0;    // of the model's other sessions
  uint64_t session_bytes = 0;  // part of `total`: this session
  uint64_t kv_bytes = 0;       // part of session_bytes: the KV cache
  uint64_t device_bytes = 0;   // part of session_bytes: on the device
  uint64_t chunk_bytes = 0;    // part of session_bytes: grows with the chunk
  uint64_t reader_bytes = 0;   // part of `total`: expert readers
  uint64_t cache_bytes = 0;    // part of `total`: the expert cache, at least one slot
};

/// True if the FFN's router in the file has a capacity.
inline bool has_capacity(const FfnConfig& ffn) {
  return ffn.kind == FfnKind::kMoe && ffn.moe.router.gamma > 0;
}

/// Fills in the defaults of `options`. MOE_ERR_RANGE names a field outside its range. If not all
/// experts fit under the cap, each expert is read once per chunk, so the chunk is the largest power
/// of two from kLeastChunk to kMaxChunk whose share of the memory left for experts is allowed.
/// Without an expert cache it is the largest chunk that fits, up to the usual one.
Result<SessionOptions> resolve_options(const Model& model, const SessionOptions& options);

/// The KV cache of a session with resolved options.
KvShape kv_shape(const SessionOptions& options);

/// Largest sizes for the device's scratch; `options` from resolve_options().
StreamShape stream_shape(const Model& model, const SessionOptions& options);

/// Fills `out` with weights, other sessions, KV cache and so on: the total in use once the session
/// exists. The cap affects only the chunk and the expert cache: if `total` exceeds it, no smaller
/// total is possible. MOE_ERR_RANGE as resolve_options(), MOE_ERR_TOO_LONG if a size overflows.
Status account_memory(const Model& model, const SessionOptions& options, MemoryAccount* out);

/// MOE_ERR_BUDGET, with the smallest possible cap and the itemised sum, if `account` exceeds `cap`
/// (0: never).
Status check_budget(const MemoryAccount& account, uint64_t cap);

}  // namespace moe
