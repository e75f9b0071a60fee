#include "formats/moe/zstd_frame.h"

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include <cstring>

#include "formats/moe/little_endian.h"

namespace moe {
namespace {

constexpr size_t kPrefix = 64;  // in front of each block: its size, which zstd does not hand back

void* allocate_block(void* allocator, size_t n) {
  if (n > SIZE_MAX - kPrefix) return nullptr;
  auto* block = static_cast<uint8_t*>(
      allocate(*static_cast<const Allocator*>(allocator), n + kPrefix, kPrefix));
  if (block == nullptr) return nullptr;
  const size_t whole = n + kPrefix;
  std::memcpy(block, &whole, sizeof whole);
  return block + kPrefix;
}

void free_block(void* allocator, void* pointer) {
  if (pointer == nullptr) return;
  auto* block = static_cast<uint8_t*>(pointer) - kPrefix;
  size_t whole = 0;
  std::memcpy(&whole, block, sizeof whole);
  deallocate(*static_cast<const Allocator*>(allocator), block, whole);
}

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

Status zstd_decompress(const uint8_t* frame, size_t n, uint8_t* out, size_t raw,
                       const Allocator& allocator) {
  MOE_TRY(check_frame(frame, n, raw));
  const ZSTD_customMem memory = {allocate_block, free_block, const_cast<Allocator*>(&allocator)};
  ZSTD_DCtx* context = ZSTD_createDCtx_advanced(memory);
  if (context == nullptr) return out_of_memory("zstd", ZSTD_estimateDCtxSize());
  const size_t got = ZSTD_decompressDCtx(context, out, raw, frame, n);
  ZSTD_freeDCtx(context);
  if (ZSTD_isError(got)) return corrupt(ZSTD_getErrorName(got));
  if (got != raw) return corrupt("the frame is shorter than it states");
  return {};
}

}  // namespace moe
