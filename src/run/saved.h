// SPDX-License-Identifier: MIT
#pragma once
// Saving and forking sessions: text, keys and values, and states of mixers as bytes.
//
// A saved session, little-endian:
//    0  magic (8), version (u16 major, u16 minor), KV type (u32, a moe_kv_type)
//   16  xxh64 of the model file's metadata, which holds the checksums of all its weights, and the
//       file's size (u64 each)
//   32  tokens n (u64), bytes after this header (u64)
//   48  the session's context if positions depend on it (longrope), otherwise 0 (u32); a number
//       naming the mixers of all layers and the sizes of their states, 0 without mixers (u32)
//   56  xxh64 of the first 56 bytes
//   64  n token ids (i32); for each layer with attention, but one that guesses, its keys, then its
//       values: for each KV head n rows of head_dim elements, for int8 then n scales (f32); unless
//       n is 0, the state of each layer with a mixer (f32); xxh64 of all this, where each array is
//       hashed with the hash of those before it as seed
//
// With minor version 1 the layer that guesses follows, which a device without it skips: where its
// stretch begins, the position of its first row that is missing, the number m of its hidden states
// (i32 each), a zero (i32); its keys and values as above, of the rows that it has; m hidden states
// of d_model numbers (f32); xxh64 of all this, where the seed of the first array is the hash
// before. Minor version 0 has none of this: where the model has no such layer or the device does
// not run it, where the layer does not know the end of the text, and in files of older versions.
//
// Independent of the device, the instruction set and the size of the cache.

#include "src/run/session.h"

namespace moe {

/// Identifies a model file.
struct ModelFileName {
  uint64_t metadata_hash = 0;
  uint64_t file_bytes = 0;
};

/// Receives a saved session, first byte to last.
struct SaveSink {
  Status (*write)(void* user, const void* bytes, size_t n) = nullptr;
  void* user = nullptr;
};

/// Provides the bytes of a saved session.
struct SaveSource {
  uint64_t size = 0;
  Status (*read)(void* user, uint64_t offset, void* to, size_t n) = nullptr;
  void* user = nullptr;
};

/// MOE_ERR_UNSUPPORTED for an encoder, which has nothing to save, and an encoder-decoder; otherwise
/// the sink's status.
Status save_session(Session& session, const ModelFileName& name, const SaveSink& sink);

/// Replaces the session's text; router and statistics are unchanged. MOE_ERR_FORMAT (not a saved
/// session, or truncated), MOE_ERR_VERSION, MOE_ERR_CORRUPT (a checksum, or a token outside the
/// vocabulary), MOE_ERR_ARGUMENT (another model, or another KV type), MOE_ERR_TOO_LONG (more tokens
/// than the context). If the first 64 bytes are rejected the session is unchanged; after any other
/// failure it is empty.
Status load_session(Session& session, const ModelFileName& name, const SaveSource& source);

/// A copy with the same model, text, options and router, but no shared mutable state.
Result<Box<Session>> fork_session(Session& session, Model& model, const Allocator& allocator);

/// Replaces the text of another session of the model by the first n tokens of `source`, without
/// evaluating them. Errors before the copying leave the target unchanged (MOE_ERR_ARGUMENT,
/// MOE_ERR_RANGE, MOE_ERR_TOO_LONG, MOE_ERR_UNSUPPORTED); after others its text is empty.
Status copy_session(Session& source, int32_t n, Session& target);

/// As error messages call it.
const char* kv_type_name(KvType type);
/// If positions depend on the context it, otherwise 0: two sessions can exchange keys only with
/// equal ones.
uint32_t context_of_positions(const SessionState& state);

}  // namespace moe
