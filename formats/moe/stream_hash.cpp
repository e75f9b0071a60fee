// SPDX-License-Identifier: MIT
// Wraps the state of xxHash, so that only this file includes it.
#include "formats/moe/stream_hash.h"

#include "formats/moe/checksum.h"

namespace moe {

struct StreamHash::State {
  XXH64_state_t state;
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) { reset(); }
StreamHash::~StreamHash() = default;

void StreamHash::reset() { XXH64_reset(&state_->state, 0); }

void StreamHash::add(const void* bytes, size_t n) { XXH64_update(&state_->state, bytes, n); }

uint64_t StreamHash::value() const { return XXH64_digest(&state_->state); }

}  // namespace moe
