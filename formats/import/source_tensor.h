// SPDX-License-Identifier: MIT
#pragma once
// A tensor as stored in a checkpoint, and the conversion of its elements.

#include <cstdint>
#include <string>
#include <vector>

namespace moe {

enum class SourceType : uint8_t {
#define MOE_SOURCE_TYPE(id, ...) id,
#define MOE_GGUF_TYPE(id, function, ...) id,
#include "formats/import/source_types.h"
};

struct SourceTypeInfo {
  SourceType type;
  bool floating = false;  // plain numbers, not codes
  const char* name;       // as in safetensors and GGUF
  uint32_t bytes;         // of one block
  int gguf = -1;          // its number in GGUF files; -1: none
  uint32_t block = 1;     // elements in a block
  // Reads the scale of each group of values in a block (gguf_blocks.h); null: no weight format has
  // such scales.
  void (*read_scales)(const uint8_t* block, float* scales, float* minimums) = nullptr;
  uint32_t tail = 0;  // bytes behind the blocks of a tensor
  void (*read_block)(const uint8_t* block, float* to) = nullptr;  // null: block is 1
};

/// A safetensors type by name; null if unknown.
const SourceTypeInfo* find_source_type(const std::string& name);
/// A GGUF type by number; null if unreadable.
const SourceTypeInfo* find_gguf_type(uint32_t number);
/// The name of a GGUF type that is not readable; "number 77" if it has none.
std::string unreadable_gguf_type(uint32_t number);
/// "F16, BF16, F32, Q8_0 ...": the readable GGUF types.
std::string gguf_type_names();
const SourceTypeInfo& source_type_info(SourceType type);

/// Bytes of n elements (whole blocks).
uint64_t source_bytes(SourceType type, uint64_t n);

/// A linear layer of BitNet, which rounds its inputs to 8 bits with one scale per token.
enum class BitLinear : uint8_t {
  kNo,
  kTernary,  // the stored weights are ternary
  kRounded   // every forward pass rounds the stored weights to ternary ones
};

float from_f16(uint16_t bits);
/// From two bytes, little-endian.
float f16_at(const uint8_t* bytes);

struct SourceTensor {
  std::string name;
  SourceType type = SourceType::kF32;
  std::vector<int64_t> shape;  // row-major; empty: one element
  uint32_t file = 0;           // index of the shard
  uint64_t offset = 0;         // of the first byte in that file
  uint64_t n_elements = 0;
  bool across = false;  // rows are scattered: read many at once
  BitLinear bit_linear = BitLinear::kNo;
  bool rotated = false;     // a matrix of rotated inputs, or an embedding of rotated rows
  uint64_t part_bytes = 0;  // of the tensors that it replaces, if any
};

/// Bytes that the tensor takes in its file.
uint64_t stored_bytes(const SourceTensor& tensor);

/// "(64, 2048)"
std::string shape_text(const std::vector<int64_t>& shape);

/// Converts n elements (whole blocks) of a stored type to float32. F64 is rounded; integers are
/// exact up to 2^24. False for a type without numeric values (F8_E5M2).
bool convert_to_f32(SourceType type, const void* from, size_t n, float* to);

/// Converts n elements of an integer type to int64; false for other types.
bool convert_to_i64(SourceType type, const void* from, size_t n, int64_t* to);

}  // namespace moe
