// SPDX-License-Identifier: MIT
#pragma once
// Decompresses one untrusted zstd frame to memory of known size.

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"

namespace moe {

/// Maximum window of a frame.
inline constexpr uint64_t kMaxZstdWindow = uint64_t{8} << 20;
/// Maximum compression ratio: limits what a small file makes us allocate.
inline constexpr uint64_t kMaxZstdRatio = 256;

/// True if a frame of n bytes may decompress to `raw`.
constexpr bool zstd_size_fits(uint64_t n, uint64_t raw) {
  return n < raw && (raw - 1) / kMaxZstdRatio < n;  // raw <= 256 n, without overflow
}

/// Size of zstd_decompress()'s state: about 160 KiB.
size_t zstd_state_bytes();

/// Decompresses exactly one ordinary frame of n bytes, whose header states `raw` bytes, to `out`.
/// MOE_ERR_CORRUPT for skippable, concatenated, legacy and dictionary frames. `state` has
/// zstd_state_bytes() at a multiple of 8; nothing is allocated.
Status zstd_decompress(const uint8_t* frame, size_t n, uint8_t* out, size_t raw, void* state);

}  // namespace moe
