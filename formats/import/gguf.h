#pragma once
// One GGUF file (version 2 or 3, little-endian): key-value pairs, tensor descriptions, then the
// bytes of all tensors. Specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#include "formats/import/file.h"
#include "formats/import/json.h"
#include "formats/import/source_tensor.h"

namespace moe {

inline constexpr uint64_t kMaxGgufHeader = uint64_t{256} << 20;

struct GgufHeader {
  Json metadata;                      // an object; arrays of arrays are refused
  std::vector<SourceTensor> tensors;  // shapes row-major, in the file's order
};

/// Reads and checks everything in front of the data. Throws MOE_ERR_FORMAT when something is cut
/// off, too long, twice there, or a tensor lies outside the file or on another one;
/// MOE_ERR_UNSUPPORTED for another version and, naming type and tensor, for a type that cannot be
/// read. `shard` is copied into the tensors.
GgufHeader read_gguf_header(const InputFile& file, uint32_t shard);

/// All parts of a split file in order when `path` ends in -00001-of-000NN.gguf; otherwise empty.
std::vector<std::string> gguf_parts(const std::string& path);

}  // namespace moe
