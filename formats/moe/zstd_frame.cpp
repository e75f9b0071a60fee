// SPDX-License-Identifier: MIT
// Checks a frame's header against the known size before it decompresses, with state in the caller's
// memory.
#include "formats/moe/zstd_frame.h"

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "formats/moe/little_endian.h"

namespace moe {
namespace {

Status corrupt(const char* why) { return Status::error(MOE_ERR_CORRUPT, "zstd: %s", why); }

Status check_frame(const uint8_t* frame, size_t n, size_t raw) {
  if (n < sizeof(uint32_t) || load_le<uint32_t>(frame) != ZSTD_MAGICNUMBER) {
    return corrupt("not an ordinary frame");
  }
  ZSTD_frameHeader header;
  if (ZSTD_getFrameHeader(&header, frame, n) != 0 || header.frameType != ZSTD_frame) {
    return corrupt("damaged frame header");
  }
  if (header.frameContentSize == ZSTD_CONTENTSIZE_UNKNOWN)
    return corrupt("the frame does not state its size");
  if (header.frameContentSize != raw) {
    return Status::error(MOE_ERR_CORRUPT, "zstd: expected %zu bytes, the frame states %llu", raw,
                         header.frameContentSize);
  }
  if (header.dictID != 0) return corrupt("the frame needs a dictionary");
  if (header.windowSize > kMaxZstdWindow) {
    return Status::error(MOE_ERR_CORRUPT, "zstd: window of %llu bytes, at most %llu are allowed",
                         header.windowSize, static_cast<unsigned long long>(kMaxZstdWindow));
  }
  const size_t end = ZSTD_findFrameCompressedSize(frame, n);
  if (ZSTD_isError(end) || end != n) return corrupt("the segment is not exactly one frame");
  return {};
}

}  // namespace

size_t zstd_state_bytes() { return ZSTD_estimateDCtxSize(); }

Status zstd_decompress(const uint8_t* frame, size_t n, uint8_t* out, size_t raw, void* state) {
  MOE_TRY(check_frame(frame, n, raw));
  ZSTD_DCtx* context = ZSTD_initStaticDCtx(state, zstd_state_bytes());
  if (context == nullptr) return Status::error(MOE_ERR_INTERNAL, "zstd: no room for its state");
  const size_t got = ZSTD_decompressDCtx(context, out, raw, frame, n);
  if (ZSTD_isError(got)) return corrupt(ZSTD_getErrorName(got));
  if (got != raw) return corrupt("the frame is shorter than it states");
  return {};
}

}  // namespace moe
