#pragma once
// A tensor as a checkpoint stores it, and its elements as numbers.

#include <cstdint>
#include <string>
#include <vector>

namespace moe {

enum class SourceType : uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kBf16,
  kF32,
  kF64,
  kF8E4M3,
  kF8E5M2,
  // Blocks of GGUF: numbers along a row share a float16 scale.
  kQ8_0,
  kTq1_0,
  kTq2_0,
  kQ2_0,
  kBlockMxfp4,   // GGUF's: the exponent lies in front of its block
  kQ2_0Group128  // the same type number in files of its first users
};

struct SourceTypeInfo {
  SourceType type;
  const char* name;    // as safetensors and GGUF spell it
  uint32_t bytes;      // of one block
  bool floating;       // readable as numbers that are not codes
  uint32_t block = 1;  // elements in a block
};

/// A type of safetensors; null for a name that is none.
const SourceTypeInfo* find_source_type(const std::string& name);
const SourceTypeInfo& source_type_info(SourceType type);

/// Bytes of n elements (whole blocks).
uint64_t source_bytes(SourceType type, uint64_t n);

float from_f16(uint16_t bits);

struct SourceTensor {
  std::string name;
  SourceType type = SourceType::kF32;
  std::vector<int64_t> shape;  // row-major; empty: one element
  uint32_t file = 0;           // index of the shard
  uint64_t offset = 0;         // of the first byte in that file
  uint64_t n_elements = 0;
};

/// "(64, 2048)"
std::string shape_text(const std::vector<int64_t>& shape);

/// n elements (whole blocks) of a stored type to float32. F64 is rounded; integers are exact up to
/// 2^24. False for a type that has no such reading (F8).
bool convert_to_f32(SourceType type, const void* from, size_t n, float* to);

/// n elements of an integer type to int64; false for another type.
bool convert_to_i64(SourceType type, const void* from, size_t n, int64_t* to);

}  // namespace moe
