// SPDX-License-Identifier: MIT
#pragma once
// The first 64 bytes of a model file.

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"

namespace moe {

inline constexpr uint8_t kMagic[8] = {0x8F, 'M', 'O', 'E', '\r', '\n', 0x1A, '\n'};
inline constexpr uint16_t kVersionMajor = 1;
inline constexpr uint16_t kVersionMinor = 7;  // the newest readable version
inline constexpr size_t kHeaderBytes = 64;
inline constexpr uint64_t kMaxMetadataBytes = uint64_t{64} << 20;
/// Metadata tables, counted once per reference, and their nesting.
inline constexpr uint32_t kMaxMetadataTables = 1'000'000;
inline constexpr uint32_t kMaxMetadataDepth = 16;

struct FileHeader {
  uint16_t major = kVersionMajor;
  uint16_t minor = 0;
  uint64_t file_bytes = 0;
  uint64_t metadata_offset = 0;
  uint64_t metadata_bytes = 0;
  uint64_t metadata_xxh64 = 0;
};

/// The bytes of a header, little-endian, checksum included.
void encode_header(const FileHeader& header, uint8_t (&bytes)[kHeaderBytes]);

/// Decodes a header and checks it against the file's real size. MOE_ERR_FORMAT, MOE_ERR_VERSION,
/// MOE_ERR_CORRUPT.
Status decode_header(const uint8_t (&bytes)[kHeaderBytes], uint64_t real_bytes, FileHeader* out);

}  // namespace moe
