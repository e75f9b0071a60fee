// SPDX-License-Identifier: MIT
#pragma once
// The inputs of the model file fuzzer: the metadata and the bytes of the segments. The parts that a
// random change would only break (header, checksums) are computed.

#include <cstdint>
#include <cstring>
#include <vector>

#include "formats/moe/checksum.h"
#include "formats/moe/header.h"
#include "formats/moe/layout.h"

namespace moe {

// byte 0: bit 0 enables checking the checksums of segments; bytes 1, 2: pages of segments;
// bytes 3..6: size of the metadata; then the metadata, then the first bytes of the segments. The
// remaining bytes of the segments are kFuzzFill, which is valid in most formats.
inline constexpr size_t kFuzzPrefix = 7;
inline constexpr uint8_t kFuzzFill = 0x15;

/// The model file of an input; empty when it is too short. The result is 64-byte aligned inside
/// `memory`.
inline std::span<const uint8_t> fuzz_file(const uint8_t* data, size_t n,
                                          std::vector<uint8_t>* memory) {
  if (n < kFuzzPrefix) return {};
  const size_t pages = static_cast<size_t>(data[1] | data[2] << 8) & 1023;
  size_t wanted = 0;
  for (size_t i = 0; i < 4; ++i) wanted |= static_cast<size_t>(data[3 + i]) << (8 * i);
  const size_t metadata = std::min(wanted, n - kFuzzPrefix);
  const size_t front = (pages + 1) * kSegmentAlign;
  memory->assign(64 + front + metadata, kFuzzFill);
  uint8_t* file = memory->data() + (64 - reinterpret_cast<uintptr_t>(memory->data()) % 64) % 64;
  const uint8_t* rest = data + kFuzzPrefix + metadata;
  const size_t n_rest = std::min(n - kFuzzPrefix - metadata, front - kSegmentAlign);
  if (n_rest != 0) std::memcpy(file + kSegmentAlign, rest, n_rest);
  if (metadata != 0) std::memcpy(file + front, data + kFuzzPrefix, metadata);
  FileHeader header;
  header.file_bytes = front + metadata;
  header.metadata_offset = front;
  header.metadata_bytes = metadata;
  header.metadata_xxh64 = xxh64(file + front, metadata);
  uint8_t bytes[kHeaderBytes];
  encode_header(header, bytes);
  std::memcpy(file, bytes, sizeof bytes);
  return {file, front + metadata};
}

}  // namespace moe
