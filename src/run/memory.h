#pragma once
// What a session costs, known before anything is allocated.

#include "src/model/model.h"
#include "src/run/kv_cache.h"

namespace moe {

/// How a session is made. Zero means the default.
struct SessionOptions {
  int32_t context = 0;  // positions of the KV cache; 0: the model's context length, at most 4096
  int32_t chunk = 0;    // rows evaluated at once; 0: 256, on a GPU 1024, or with an expert capacity
                        // or an encoder the context or the source, at most kMaxChunk, or under a
                        // cap what resolve_options() says; never more than the longer of them
  KvType kv = KvType::kF16;
  int32_t max_beam = 0;  // hypotheses of an encoder-decoder's searches, 1..kMaxBeam; 0: 5
  int32_t source = 0;    // of resolve_options(): tokens that an encoder-decoder's source may have
  uint64_t memory_cap =
      0;  // bytes for the weights, the other sessions and this one; 0: the model's
  uint64_t other_sessions_bytes =
      0;                       // what the model's other sessions hold; counts against the cap
  bool chunk_follows = false;  // of resolve_options(): nobody chose the chunk
};

/// Whether a decoder's layer may keep what keys and values come from (KvType::kLatent), as far as
/// its configuration says.
inline bool can_keep_latent(const AttentionConfig& a) {
  return kLatentCaches && a.causal && a.latent > 0 && a.qk_norm == QkNorm::kNone &&
         a.qkv_clip == 0 && a.rope.dims < a.head_dim;
}

inline constexpr int32_t kDefaultContext = 4096;
inline constexpr int32_t kDefaultChunk = 256;
/// On a GPU, where products of 512 rows and more go to cuBLASLt, as long as all weights stay there.
inline constexpr int32_t kDefaultDeviceChunk = 1024;
inline constexpr int32_t kMaxChunk = 4096;
inline constexpr int32_t kLeastChunk = 32;  // of those that nobody chose
/// The part of an expert cache that a chunk's memory may take from it: one in so many.
inline constexpr uint64_t kChunkShare = 16;
/// Rows of logits that exist at once: on the CPU, and on a device that waits for every copy.
inline constexpr int32_t kLogitRows = 8;
inline constexpr int32_t kDeviceLogitRows = kMaxChoiceRows;
/// And at most where the layers' memory is free for them: the head's weights are then read seldom
/// enough.
inline constexpr int32_t kLateLogitRows = 64;

/// The account of one model with one session, line by line.
struct MemoryAccount {
  static constexpr int32_t kMaxLines = 24;
  MemoryLine lines[kMaxLines] = {};
  int32_t n_lines = 0;
  uint64_t total = 0;          // of all lines
  uint64_t other_bytes = 0;    // of the model's other sessions
  uint64_t session_bytes = 0;  // of those that the session itself holds
  uint64_t kv_bytes = 0;       // of these, the KV cache
  uint64_t device_bytes = 0;   // of these, on the device
  uint64_t chunk_bytes = 0;    // of these, what grows with the chunk
  uint64_t reader_bytes = 0;   // of `total`, what reads experts
  uint64_t cache_bytes = 0;  // of `total`, the expert cache: what the cap leaves, at least one slot
};

/// Whether the FFN's router, as the file has it, refuses pairs.
inline bool has_capacity(const FfnConfig& ffn) {
  return ffn.kind == FfnKind::kMoe && ffn.moe.router.gamma > 0;
}

/// `options` with every default filled in. MOE_ERR_RANGE names a field outside its range. Under a
/// cap that all experts do not fit in, each expert is read once per chunk, so the chunk is the
/// largest power of two from kLeastChunk to kMaxChunk that takes at most a kChunkShare-th of what
/// is left for experts. Where there is no expert cache, it is the largest up to the usual one that
/// fits.
Result<SessionOptions> resolve_options(const Model& model, const SessionOptions& options);

/// The KV cache of a session with resolved options.
KvShape kv_shape(const SessionOptions& options);

/// Largest sizes that the device's scratch must serve; `options` as resolve_options() gives them.
StreamShape stream_shape(const Model& model, const SessionOptions& options);

/// Fills `out` with weights, other sessions, KV cache and so on: what session creation would hold.
/// The cap decides about the chunk and the expert cache alone: when `total` is more than it, no
/// less would do. MOE_ERR_RANGE as resolve_options(), MOE_ERR_TOO_LONG when a size overflows.
Status account_memory(const Model& model, const SessionOptions& options, MemoryAccount* out);

/// MOE_ERR_BUDGET with the least cap and the sum when `account` exceeds `cap` (0:
/// never).
Status check_budget(const MemoryAccount& account, uint64_t cap);

}  // namespace moe
