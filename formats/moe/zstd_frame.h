#pragma once
// One zstd frame from a stranger into memory of known size.

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"

namespace moe {

/// Largest window that a frame may ask for.
inline constexpr uint64_t kMaxZstdWindow = uint64_t{8} << 20;
/// A segment may not grow by more than this factor: a bound on what a small file makes us allocate.
inline constexpr uint64_t kMaxZstdRatio = 256;

/// True when a frame of n bytes may stand for `raw`.
constexpr bool zstd_size_fits(uint64_t n, uint64_t raw) {
  return n < raw && (raw - 1) / kMaxZstdRatio < n;  // raw <= 256 n, without overflow
}

/// What zstd_decompress() works in: about 160 KiB.
size_t zstd_state_bytes();

/// Decompresses exactly one ordinary frame of n bytes, whose header states `raw` bytes, into `out`.
/// Skippable, concatenated, older and dictionary frames are MOE_ERR_CORRUPT. `state` holds
/// zstd_state_bytes() at a multiple of 8; nothing is allocated.
Status zstd_decompress(const uint8_t* frame, size_t n, uint8_t* out, size_t raw, void* state);

}  // namespace moe
