// SPDX-License-Identifier: MIT
#pragma once
// One GGUF file (version 2 or 3, little-endian): key-value pairs, tensor descriptions, then the
// bytes of all tensors. Specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#include "formats/import/file.h"
#include "formats/import/json.h"
#include "formats/import/source_tensor.h"

namespace moe {

inline constexpr uint64_t kMaxGgufHeader = uint64_t{256} << 20;

struct GgufHeader {
  Json metadata;                      // an object; arrays of arrays are rejected
  std::vector<SourceTensor> tensors;  // row-major shapes, in file order
};

/// Reads and checks everything before the data. Throws MOE_ERR_FORMAT for truncated, too long or
/// duplicate items, for a part of a split file whose name does not say so, and for a tensor outside
/// the file or overlapping another; MOE_ERR_UNSUPPORTED for another version or, naming type and
/// tensor, an unreadable type. `shard` is copied to the tensors.
GgufHeader read_gguf_header(const InputFile& file, uint32_t shard);

}  // namespace moe
