// SPDX-License-Identifier: MIT
// Writes the header; reading, it refuses other versions, cut-off files and other formats by name.
#include "formats/moe/header.h"

#include <cinttypes>
#include <cstring>

#include "formats/moe/checksum.h"
#include "formats/moe/layout.h"
#include "formats/moe/little_endian.h"

namespace moe {
namespace {

constexpr size_t kMajor = 8;
constexpr size_t kMinor = 10;
constexpr size_t kSize = 12;
constexpr size_t kFileBytes = 16;
constexpr size_t kMetadataOffset = 24;
constexpr size_t kMetadataBytes = 32;
constexpr size_t kMetadataHash = 40;
constexpr size_t kReserved = 48;
constexpr size_t kChecksum = 56;

Status check_version(const FileHeader& header) {
  if (header.major == kVersionMajor && header.minor <= kVersionMinor) return {};
  const bool newer = header.major >= kVersionMajor;
  return Status::error(newer ? MOE_ERR_VERSION : MOE_ERR_FORMAT,
                       "model file: this program reads versions %d.0 to %d.%d, the file has %d.%d",
                       kVersionMajor, kVersionMajor, kVersionMinor, header.major, header.minor);
}

Status check_places(const FileHeader& header, uint64_t real_bytes) {
  if (header.file_bytes != real_bytes) {
    return Status::error(MOE_ERR_FORMAT,
                         "model file: expected %" PRIu64
                         " bytes, as its header says, found %" PRIu64 " (cut off or added to)",
                         header.file_bytes, real_bytes);
  }
  const uint64_t n = header.metadata_bytes;
  if (n == 0 || n > kMaxMetadataBytes || header.metadata_offset < kSegmentAlign ||
      header.metadata_offset % kSegmentAlign != 0 || header.metadata_offset > real_bytes ||
      n != real_bytes - header.metadata_offset) {
    return Status::error(MOE_ERR_FORMAT,
                         "model file: metadata of %" PRIu64 " bytes at %" PRIu64
                         " cannot be the end of a file of %" PRIu64 " bytes",
                         n, header.metadata_offset, real_bytes);
  }
  return {};
}

// Recognises files commonly mistaken for a model file.
const char* kind_of(const uint8_t (&bytes)[kHeaderBytes]) {
  if (std::memcmp(bytes, "version https://git-lfs", 23) == 0) {
    return "a Git LFS pointer; git lfs pull fetches the file";
  }
  if (std::memcmp(bytes, "GGUF", 4) == 0) return "GGUF; convert it with moe convert";
  if (std::memcmp(bytes + 8, "{\"", 2) == 0) {
    return "safetensors; moe convert converts its folder";
  }
  return "it does not begin with the magic bytes";
}

}  // namespace

void encode_header(const FileHeader& header, uint8_t (&bytes)[kHeaderBytes]) {
  std::memset(bytes, 0, sizeof bytes);
  std::memcpy(bytes, kMagic, sizeof kMagic);
  store_le(header.major, bytes + kMajor);
  store_le(header.minor, bytes + kMinor);
  store_le(static_cast<uint32_t>(kHeaderBytes), bytes + kSize);
  store_le(header.file_bytes, bytes + kFileBytes);
  store_le(header.metadata_offset, bytes + kMetadataOffset);
  store_le(header.metadata_bytes, bytes + kMetadataBytes);
  store_le(header.metadata_xxh64, bytes + kMetadataHash);
  store_le(xxh64(bytes, kChecksum), bytes + kChecksum);
}

Status decode_header(const uint8_t (&bytes)[kHeaderBytes], uint64_t real_bytes, FileHeader* out) {
  if (std::memcmp(bytes, kMagic, sizeof kMagic) != 0) {
    return Status::error(MOE_ERR_FORMAT, "not a model file: %s", kind_of(bytes));
  }
  FileHeader header;
  header.major = load_le<uint16_t>(bytes + kMajor);
  header.minor = load_le<uint16_t>(bytes + kMinor);
  MOE_TRY(check_version(header));  // before the checksum: a newer header may differ
  if (load_le<uint64_t>(bytes + kChecksum) != xxh64(bytes, kChecksum)) {
    return Status::error(MOE_ERR_CORRUPT, "model file: the checksum of the header does not match");
  }
  const uint32_t size = load_le<uint32_t>(bytes + kSize);
  if (size != kHeaderBytes || load_le<uint64_t>(bytes + kReserved) != 0) {
    return Status::error(MOE_ERR_FORMAT, "model file: header: expected %zu bytes, found %u",
                         kHeaderBytes, size);
  }
  header.file_bytes = load_le<uint64_t>(bytes + kFileBytes);
  header.metadata_offset = load_le<uint64_t>(bytes + kMetadataOffset);
  header.metadata_bytes = load_le<uint64_t>(bytes + kMetadataBytes);
  header.metadata_xxh64 = load_le<uint64_t>(bytes + kMetadataHash);
  MOE_TRY(check_places(header, real_bytes));
  *out = header;
  return {};
}

}  // namespace moe
