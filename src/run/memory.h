// SPDX-License-Identifier: MIT
#pragma once
// Memory that sessions and their passes need, computed before allocating.

#include <algorithm>

#include "src/model/model.h"
#include "src/run/kv_cache.h"

namespace moe {

/// Options of a session. Zero means the default.
struct SessionOptions {
  int32_t context = 0;  // positions of the KV cache; 0: the model's context length, at most 4096
  int32_t chunk = 0;    // rows evaluated at once; 0: 256, on a GPU 1024; with an expert capacity or
                        // an encoder the context or the source, at most kMaxChunk; under a cap see
                        // automatic_rows(); never more than the longer of the two
  KvType kv = KvType::kF16;
  int32_t max_beam = 0;  // hypotheses of an encoder-decoder's searches, 1..kMaxBeam; 0: 5
  int32_t source = 0;    // set by resolve_options(): maximum tokens of an encoder-decoder's source
  bool chunk_follows = false;  // set by resolve_options(): the chunk was not specified
};

/// True if the configuration of a decoder's layer allows caching the latent (KvType::kLatent).
inline bool can_keep_latent(const AttentionConfig& a) {
  return a.causal && a.latent > 0 && a.qk_norm == QkNorm::kNone && a.qkv_clip == 0 &&
         a.rope.dims < a.head_dim;
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
inline constexpr int32_t kScratchLogitRows = 64;
/// Bytes of a session's handle in the C API.
inline constexpr uint64_t kHandleBytes = 320;

/// The largest pass that a workspace holds.
struct PassShape {
  int32_t rows = 0;
  int32_t context = 0;  // positions that attention sees
  bool latent = false;  // keys and values are cached as latents
  bool operator==(const PassShape&) const = default;
};

/// A session's demands on the workspace of its passes.
struct PassDemand {
  int32_t rows = 0;        // of its chunk; automatic: at most so many
  bool automatic = false;  // the chunk follows the memory that is left
  int32_t context = 0;
  bool latent = false;
  bool operator==(const PassDemand&) const = default;
  /// Its chunk, if automatic chunks have `automatic_rows`.
  int32_t chunk(int32_t automatic_rows) const {
    return automatic ? std::min(rows, automatic_rows) : rows;
  }
};

/// The demands of several sessions on one workspace that serves each of them.
struct PassDemands {
  int32_t fixed_rows = 0;
  int32_t automatic_rows = 0;  // the most that an automatic chunk may have; 0: none is automatic
  int32_t context = 0;
  bool latent = false;
  void add(const PassDemand& demand);
  PassShape shape(int32_t rows) const;
};

/// The workspace of one session alone, if automatic chunks have `rows`.
inline PassShape shape_of(const PassDemand& demand, int32_t rows = kMaxChunk) {
  return {demand.chunk(rows), demand.context, demand.latent};
}

/// The parts of a workspace, in bytes.
struct WorkspaceBytes {
  uint64_t activations = 0;
  uint64_t scratch = 0;
  uint64_t host_scratch = 0;  // if scratch is not host memory
  uint64_t lists = 0;
  uint64_t sampling = 0;
  /// All that grows with its rows.
  uint64_t chunk() const { return activations + scratch + host_scratch + lists; }
  uint64_t total() const { return chunk() + sampling; }
};

/// Memory account of one model with sessions.
struct MemoryAccount {
  static constexpr int32_t kMaxLines = 24;
  MemoryLine lines[kMaxLines] = {};
  int32_t n_lines = 0;
  int32_t chunk = 0;           // of the sessions
  uint64_t total = 0;          // sum of all lines
  uint64_t other_bytes = 0;    // part of `total`: of sessions that exist already
  uint64_t session_bytes = 0;  // of each session
  uint64_t kv_bytes = 0;       // part of `total`: the KV caches of the sessions
  uint64_t pass_bytes = 0;     // of the workspace of one pass
  uint64_t chunk_bytes = 0;    // part of pass_bytes: grows with the chunk
  uint64_t device_bytes = 0;   // a session and the workspace of its pass, on the device
  uint64_t scratch_bytes = 0;  // part of `total`: of sessions and passes, except for KV caches
  uint64_t reader_bytes = 0;   // part of `total`: expert readers
  uint64_t cache_bytes = 0;    // part of `total`: the expert cache, at least one slot
};

/// Fills in the defaults of `options`. MOE_ERR_RANGE names a field outside its range.
Result<SessionOptions> resolve_options(const Model& model, const SessionOptions& options);

/// `options` from resolve_options(). has_capacity: the session's router was given a capacity, so a
/// call is one chunk.
PassDemand pass_demand(const Model& model, const SessionOptions& options, bool has_capacity);

/// The rows of automatic chunks of sessions with these demands, if `left` bytes are left for the
/// workspace and the expert cache: kDefaultChunk if everything fits then. Otherwise each expert is
/// read once per chunk, so it is the largest power of two from kLeastChunk to kMaxChunk whose
/// workspace takes its share at most; without an expert cache the largest one that fits.
int32_t automatic_rows(const Model& model, const PassDemands& demands, uint64_t left);

/// The KV cache of a session with resolved options.
KvShape kv_shape(const SessionOptions& options);

/// Largest sizes for the device's scratch.
StreamShape stream_shape(const Model& model, const PassShape& shape);

/// MOE_ERR_TOO_LONG if a size overflows.
Status workspace_bytes(const Model& model, const PassShape& shape, WorkspaceBytes* out);

/// True if sessions borrow the workspaces of their passes; otherwise each keeps one.
inline bool lends_workspaces(const Model& model) { return model.device().uses_host_memory(); }

/// The sessions that share a model's memory with those of an account.
struct Sharers {
  int32_t n_sessions = 1;    // of the account
  PassDemands demands = {};  // of other sessions
  uint64_t bytes = 0;        // of other sessions
  bool least = false;        // as under the smallest possible cap, not under the model's
};

/// Fills `out` with weights, KV caches and so on: the total in use once the sessions exist and one
/// of them is evaluated. The cap affects only the chunk and the expert cache: if `total` exceeds
/// it, no smaller total is possible. MOE_ERR_RANGE as resolve_options(), MOE_ERR_TOO_LONG if a size
/// overflows.
Status account_memory(const Model& model, const SessionOptions& options, const Sharers& sharers,
                      MemoryAccount* out);
/// The same for one session alone.
Status account_memory(const Model& model, const SessionOptions& options, MemoryAccount* out);

/// MOE_ERR_BUDGET, with the smallest possible cap and the itemised sum, if `account` exceeds the
/// model's cap.
Status check_room(const Model& model, const MemoryAccount& account);

}  // namespace moe
