// SPDX-License-Identifier: MIT
#pragma once
// One safetensors file: u64 header length, JSON header, then the bytes of all tensors.

#include "formats/import/file.h"
#include "formats/import/json_value.h"
#include "formats/import/source_tensor.h"

namespace moe {

/// Maximum header size (the largest published models need a tenth of it).
inline constexpr uint64_t kMaxSafetensorsHeader = uint64_t{64} << 20;
inline constexpr size_t kMaxSafetensorsRank = 8;

/// Reads and checks the header; returns the tensors sorted by name. Throws MOE_ERR_FORMAT if the
/// header is too long, not JSON, or has a tensor of unknown dtype, negative or overflowing size, or
/// bytes that do not match its shape, lie outside the file or overlap another tensor; also if bytes
/// of the file belong to no tensor. `shard` is copied to the tensors. `metadata`: null, or receives
/// `__metadata__` unchecked; null if there is none.
std::vector<SourceTensor> read_safetensors_header(const InputFile& file, uint32_t shard,
                                                  Json* metadata = nullptr);

/// The same for a file's first bytes in memory; `file_size` is the whole file's size, `name`
/// prefixes errors.
std::vector<SourceTensor> parse_safetensors_header(std::string_view header, uint64_t file_size,
                                                   const std::string& name, uint32_t shard);

}  // namespace moe
