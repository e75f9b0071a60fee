#include "formats/import/source_tensor.h"

#include <bit>
#include <cstring>

#include "formats/import/gguf_blocks.h"

namespace moe {
namespace {

constexpr SourceTypeInfo kTypes[] = {{SourceType::kBool, "BOOL", 1, false},
                                     {SourceType::kU8, "U8", 1, false},
                                     {SourceType::kI8, "I8", 1, false},
                                     {SourceType::kI16, "I16", 2, false},
                                     {SourceType::kU16, "U16", 2, false},
                                     {SourceType::kI32, "I32", 4, false},
                                     {SourceType::kU32, "U32", 4, false},
                                     {SourceType::kI64, "I64", 8, false},
                                     {SourceType::kU64, "U64", 8, false},
                                     {SourceType::kF16, "F16", 2, true},
                                     {SourceType::kBf16, "BF16", 2, true},
                                     {SourceType::kF32, "F32", 4, true},
                                     {SourceType::kF64, "F64", 8, true},
                                     {SourceType::kF8E4M3, "F8_E4M3", 1, false},
                                     {SourceType::kF8E5M2, "F8_E5M2", 1, false},
                                     {SourceType::kQ8_0, "Q8_0", 34, true, 32},
                                     {SourceType::kTq1_0, "TQ1_0", 54, true, 256},
                                     {SourceType::kTq2_0, "TQ2_0", 66, true, 256},
                                     {SourceType::kQ2_0, "Q2_0", 18, true, 64},
                                     {SourceType::kBlockMxfp4, "MXFP4", 17, true, 32},
                                     {SourceType::kQ2_0Group128, "Q2_0", 34, true, 128}};

float from_bf16(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

// memcpy reads: a tensor may start at any byte.
template <class From, class To, class F>
void convert_all(const void* from, size_t n, To* to, F&& convert) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (size_t i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    to[i] = convert(value);
  }
}

template <class From, class To>
bool cast_all(const void* from, size_t n, To* to) {
  convert_all<From>(from, n, to, [](From value) { return static_cast<To>(value); });
  return true;
}

template <class To>
bool cast_integers(SourceType type, const void* from, size_t n, To* to) {
  switch (type) {
    case SourceType::kBool:
    case SourceType::kU8:
      return cast_all<uint8_t>(from, n, to);
    case SourceType::kI8:
      return cast_all<int8_t>(from, n, to);
    case SourceType::kI16:
      return cast_all<int16_t>(from, n, to);
    case SourceType::kU16:
      return cast_all<uint16_t>(from, n, to);
    case SourceType::kI32:
      return cast_all<int32_t>(from, n, to);
    case SourceType::kU32:
      return cast_all<uint32_t>(from, n, to);
    case SourceType::kI64:
      return cast_all<int64_t>(from, n, to);
    case SourceType::kU64:
      return cast_all<uint64_t>(from, n, to);
    default:
      return false;
  }
}

}  // namespace

float from_f16(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  const uint32_t mantissa = h & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal: exact
  return sign != 0 ? -magnitude : magnitude;
}

const SourceTypeInfo* find_source_type(const std::string& name) {
  for (const SourceTypeInfo& info : kTypes) {
    if (info.block == 1 && name == info.name) return &info;
  }
  return nullptr;
}

const SourceTypeInfo& source_type_info(SourceType type) {
  return kTypes[static_cast<size_t>(type)];
}

uint64_t source_bytes(SourceType type, uint64_t n) {
  const SourceTypeInfo& info = source_type_info(type);
  return n / info.block * info.bytes;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + ")";
}

bool convert_to_f32(SourceType type, const void* from, size_t n, float* to) {
  switch (type) {
    case SourceType::kF32:
      std::memcpy(to, from, n * sizeof(float));
      return true;
    case SourceType::kBf16:
      convert_all<uint16_t>(from, n, to, from_bf16);
      return true;
    case SourceType::kF16:
      convert_all<uint16_t>(from, n, to, from_f16);
      return true;
    case SourceType::kF64:
      return cast_all<double>(from, n, to);
    case SourceType::kQ8_0:
    case SourceType::kTq1_0:
    case SourceType::kTq2_0:
    case SourceType::kQ2_0:
    case SourceType::kBlockMxfp4:
    case SourceType::kQ2_0Group128:
      read_blocks(type, from, n / source_type_info(type).block, to);
      return true;
    default:
      return cast_integers(type, from, n, to);
  }
}

bool convert_to_i64(SourceType type, const void* from, size_t n, int64_t* to) {
  return cast_integers(type, from, n, to);
}

}  // namespace moe
