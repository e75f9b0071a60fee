#pragma once
// Sessions that last: their text with its keys and values as bytes, and copies of them.
//
// A saved session, little-endian:
//    0  magic (8), version (u16 major, u16 minor), KV type (u32: 1 f16, 2 int8)
//   16  xxh64 of the model file's metadata, which holds the checksums of all its weights, and the
//       file's size (u64 each)
//   32  tokens n (u64), bytes behind this header (u64)
//   48  the session's context where positions depend on it (longrope), else 0 (u32), zeros
//   56  xxh64 of the first 56 bytes
//   64  n token ids (i32); for each layer with attention its keys, then its values: for each KV
//   head
//       n rows of head_dim elements, for int8 then n scales (f32); xxh64 of all this, where each of
//       these arrays is hashed with the hash of those before it as seed
// Nothing of it depends on the device, the instruction set or the size of the cache.

#include "src/run/session.h"

namespace moe {

/// What names a model file.
struct ModelFileName {
  uint64_t metadata_hash = 0;
  uint64_t file_bytes = 0;
};

/// Where a saved session goes, from its first byte to its last.
struct SaveSink {
  Status (*write)(void* user, const void* bytes, size_t n) = nullptr;
  void* user = nullptr;
};

/// Where it comes from.
struct SaveSource {
  uint64_t size = 0;
  Status (*read)(void* user, uint64_t offset, void* to, size_t n) = nullptr;
  void* user = nullptr;
};

/// MOE_ERR_UNSUPPORTED for an encoder, which keeps nothing, and an encoder-decoder; else what the
/// sink says.
Status save_session(Session& session, const ModelFileName& name, const SaveSink& sink);

/// Replaces the session's text. The session keeps its router and its statistics. MOE_ERR_FORMAT (no
/// saved session, or cut off), MOE_ERR_VERSION, MOE_ERR_CORRUPT (a checksum; a token that the
/// vocabulary does not have), MOE_ERR_ARGUMENT (of another model, or with another type of keys and
/// values), MOE_ERR_TOO_LONG (more tokens than the context). A refusal for the first 64 bytes
/// leaves the session as it was; after any other failure it is empty.
Status load_session(Session& session, const ModelFileName& name, const SaveSource& source);

/// A session of the same model with the same text, options and router, which shares nothing with it
/// that changes. other_sessions_bytes: of all the model's sessions, `session` included.
Result<Box<Session>> fork_session(Session& session, Model& model, uint64_t other_sessions_bytes,
                                  const Allocator& allocator);

}  // namespace moe
