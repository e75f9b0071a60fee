#pragma once
// zstd over a segment that lies in a sink already, in bounded memory. Part of libmoe_convert.

#include "formats/moe/writer.h"

namespace moe {

/// True when `size` compressed bytes save 5 % of `raw` and stay within what readers accept.
bool zstd_is_worth(uint64_t raw, uint64_t size);

/// The size that `raw` bytes at `offset` compress to.
Status measure_zstd(ModelSink& sink, uint64_t offset, uint64_t raw, uint64_t* size);

/// Replaces the bytes by their frame; gives its size and xxh64. The frame always trails what was
/// read.
Status compress_in_place(ModelSink& sink, uint64_t offset, uint64_t raw, uint64_t* size,
                         uint64_t* hash);

}  // namespace moe
