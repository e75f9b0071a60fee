#pragma once
// One safetensors file: u64 header length, JSON header, then the bytes of all tensors.

#include "formats/import/file.h"
#include "formats/import/source_tensor.h"

namespace moe {

/// Longest header accepted (tensors of the largest published models need a tenth of it).
inline constexpr uint64_t kMaxSafetensorsHeader = uint64_t{64} << 20;
inline constexpr size_t kMaxSafetensorsRank = 8;

/// Reads and checks the header, and returns its tensors in order of name. Throws MOE_ERR_FORMAT
/// when the header is too long, not JSON, or describes a tensor of unknown dtype, of a negative or
/// overflowing size, whose bytes do not fit its shape, lie outside the file or belong to another
/// tensor too, or when bytes of the file belong to no tensor. `shard` is copied into the tensors.
std::vector<SourceTensor> read_safetensors_header(const InputFile& file, uint32_t shard);

/// The same on a file's first bytes in memory; `file_size` is that of the whole file, `name` stands
/// in front of errors.
std::vector<SourceTensor> parse_safetensors_header(std::string_view header, uint64_t file_size,
                                                   const std::string& name, uint32_t shard);

}  // namespace moe
