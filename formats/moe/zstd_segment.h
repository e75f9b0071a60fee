// SPDX-License-Identifier: MIT
#pragma once
// Compresses a segment in a sink with zstd, in bounded memory. Part of libmoe_convert.

#include "formats/moe/writer.h"

namespace moe {

/// True if `size` compressed bytes save 5 % of `raw` and readers accept the ratio.
bool zstd_is_worth(uint64_t raw, uint64_t size);

/// The compressed size of `raw` bytes at `offset`.
Status measure_zstd(ModelSink& sink, uint64_t offset, uint64_t raw, uint64_t* size);

/// Replaces the bytes by their frame; returns its size and xxh64. Writing never overtakes reading.
Status compress_in_place(ModelSink& sink, uint64_t offset, uint64_t raw, uint64_t* size,
                         uint64_t* hash);

}  // namespace moe
