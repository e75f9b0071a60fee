// SPDX-License-Identifier: MIT
// Compresses a segment in its own place, a chunk at a time, or only measures the result.
#include "formats/moe/zstd_segment.h"

#include <zstd.h>

#include <algorithm>
#include <cinttypes>

#include "formats/moe/stream_hash.h"
#include "formats/moe/zstd_frame.h"

namespace moe {
namespace {

constexpr int kLevel = 3;
constexpr int kWindowLog = 21;  // 2 MiB; readers accept up to 8
constexpr size_t kChunk = size_t{1} << 20;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

// Passes the frame to `take` in pieces, each after its input chunk was read.
Status compress(ModelSink& sink, uint64_t offset, uint64_t raw,
                const std::function<Status(const uint8_t*, size_t, uint64_t n_read)>& take) {
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (!context) return out_of_memory("zstd", 0);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, kWindowLog);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag,
                         0);  // the segment has its own checksum
  ZSTD_CCtx_setPledgedSrcSize(context.get(), raw);
  std::vector<uint8_t> in(kChunk);
  std::vector<uint8_t> out(ZSTD_CStreamOutSize());
  for (uint64_t done = 0; done < raw;) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(kChunk, raw - done));
    MOE_TRY(sink.read(offset + done, in.data(), n));
    done += n;
    ZSTD_inBuffer input = {in.data(), n, 0};
    const ZSTD_EndDirective mode = done == raw ? ZSTD_e_end : ZSTD_e_continue;
    for (size_t left = 1; left != 0;) {
      ZSTD_outBuffer output = {out.data(), out.size(), 0};
      left = ZSTD_compressStream2(context.get(), &output, &input, mode);
      if (ZSTD_isError(left))
        return Status::error(MOE_ERR_MEMORY, "zstd: %s", ZSTD_getErrorName(left));
      MOE_TRY(take(out.data(), output.pos, done));
      if (mode == ZSTD_e_continue) left = n - input.pos;
    }
  }
  return {};
}

}  // namespace

bool zstd_is_worth(uint64_t raw, uint64_t size) {
  return zstd_size_fits(size, raw) && raw - size >= raw / 20;
}

Status measure_zstd(ModelSink& sink, uint64_t offset, uint64_t raw, uint64_t* size) {
  uint64_t total = 0;
  MOE_TRY(compress(sink, offset, raw, [&total](const uint8_t*, size_t n, uint64_t) {
    total += n;
    return Status();
  }));
  *size = total;
  return {};
}

Status compress_in_place(ModelSink& sink, uint64_t offset, uint64_t raw, uint64_t* size,
                         uint64_t* hash) {
  StreamHash written;
  uint64_t total = 0;
  std::vector<uint8_t> waiting;  // output that would overwrite unread input: the first few bytes
  const auto flush = [&](uint64_t n_read) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(waiting.size(), n_read - total));
    if (n == 0) return Status();
    MOE_TRY(sink.write(offset + total, waiting.data(), n));
    total += n;
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(n));
    return Status();
  };
  MOE_TRY(compress(sink, offset, raw, [&](const uint8_t* bytes, size_t n, uint64_t n_read) {
    written.add(bytes, n);
    waiting.insert(waiting.end(), bytes, bytes + n);
    return flush(n_read);
  }));
  if (!waiting.empty())
    return Status::error(MOE_ERR_INTERNAL, "zstd: the frame outgrew its segment");
  *size = total;
  *hash = written.value();
  return {};
}

}  // namespace moe
