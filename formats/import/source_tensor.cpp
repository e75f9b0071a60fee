// SPDX-License-Identifier: MIT
// The table of element types, their sizes and names, and their conversion to float or integers.
#include "formats/import/source_tensor.h"

#include <bit>
#include <cstring>

#include "formats/import/gguf_blocks.h"

namespace moe {
namespace {

// One row per type, in the order of SourceType.
constexpr SourceTypeInfo kTypes[] = {
    {SourceType::kBool, "BOOL", 1, false},
    {SourceType::kU8, "U8", 1, false},
    {SourceType::kI8, "I8", 1, false},
    {SourceType::kI16, "I16", 2, false},
    {SourceType::kU16, "U16", 2, false},
    {SourceType::kI32, "I32", 4, false, 26},
    {SourceType::kU32, "U32", 4, false},
    {SourceType::kI64, "I64", 8, false},
    {SourceType::kU64, "U64", 8, false},
    {SourceType::kF16, "F16", 2, true, 1},
    {SourceType::kBf16, "BF16", 2, true, 30},
    {SourceType::kF32, "F32", 4, true, 0},
    {SourceType::kF64, "F64", 8, true, 28},
    {SourceType::kF8E4M3, "F8_E4M3", 1, false},
    {SourceType::kF8E5M2, "F8_E5M2", 1, false},
    {SourceType::kF8E8M0, "F8_E8M0", 1, false},
    {SourceType::kCodes4, "codes of 4 bits", 1, true, -1, 2},
    {SourceType::kCodes8, "codes of 8 bits", 1, true},
    {SourceType::kCodes2, "ternary codes", 1, true, -1, 4},
    {SourceType::kQ8_0, "Q8_0", 34, true, 8, 32, read_q8_0},
    {SourceType::kTq1_0, "TQ1_0", 54, true, 34, 256, read_tq1_0},
    {SourceType::kTq2_0, "TQ2_0", 66, true, 35, 256, read_tq2_0},
    {SourceType::kQ2_0, "Q2_0", 18, true, 42, 64, read_q2_0},
    {SourceType::kBlockMxfp4, "MXFP4", 17, true, 39, 32, read_mxfp4, scales_of_mxfp4},
    {SourceType::kQ2_0Group128, "Q2_0", 34, true, -1, 128, read_q2_0_group128},
    {SourceType::kQ4_0, "Q4_0", 18, true, 2, 32, read_q4_0, scales_of_q4_0},
    {SourceType::kQ4_1, "Q4_1", 20, true, 3, 32, read_q4_1, scales_of_q4_1},
    {SourceType::kQ5_0, "Q5_0", 22, true, 6, 32, read_q5_0},
    {SourceType::kQ5_1, "Q5_1", 24, true, 7, 32, read_q5_1},
    {SourceType::kQ2K, "Q2_K", 84, true, 10, 256, read_q2_k},
    {SourceType::kQ3K, "Q3_K", 110, true, 11, 256, read_q3_k},
    {SourceType::kQ4K, "Q4_K", 144, true, 12, 256, read_q4_k, scales_of_q4_k},
    {SourceType::kQ5K, "Q5_K", 176, true, 13, 256, read_q5_k},
    {SourceType::kQ6K, "Q6_K", 210, true, 14, 256, read_q6_k, scales_of_q6_k},
    {SourceType::kIq4Nl, "IQ4_NL", 18, true, 20, 32, read_iq4_nl, scales_of_iq4_nl},
    {SourceType::kIq4Xs, "IQ4_XS", 136, true, 23, 256, read_iq4_xs, scales_of_iq4_xs},
    {.type = SourceType::kI2S,
     .name = "I2_S",
     .bytes = 16,
     .floating = true,
     .gguf = 36,
     .block = 64,
     .tail = 32}};

float from_bf16(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

// OCP's FP8 E4M3: no infinities, and NaN is the largest code of each sign.
float from_f8_e4m3(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t exponent = code >> 3 & 15u;
  const uint32_t mantissa = code & 7u;
  if ((code & 0x7Fu) == 0x7Fu) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 120) << 23 | mantissa << 20);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return sign != 0 ? -magnitude : magnitude;
}

// OCP's E8M0: a power of two, or NaN.
float from_f8_e8m0(uint8_t code) {
  constexpr uint32_t kNan = 0x7FC00000u, kSmallest = 0x00400000u;  // 2^-127 is subnormal
  if (code == 255) return std::bit_cast<float>(kNan);
  return std::bit_cast<float>(code == 0 ? kSmallest : uint32_t{code} << 23);
}

// Reads with memcpy: a tensor may be unaligned.
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

float f16_at(const uint8_t* bytes) {
  return from_f16(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}

const SourceTypeInfo* find_source_type(const std::string& name) {
  for (const SourceTypeInfo& info : kTypes) {
    if (info.type < SourceType::kCodes4 && name == info.name) return &info;
  }
  return nullptr;
}

const SourceTypeInfo* find_gguf_type(uint32_t number) {
  for (const SourceTypeInfo& info : kTypes) {
    if (info.gguf >= 0 && static_cast<uint32_t>(info.gguf) == number) return &info;
  }
  return nullptr;
}

std::string gguf_type_names() {
  std::string names;
  for (const SourceTypeInfo& info : kTypes) {
    if (info.gguf >= 0 && info.floating)
      names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  return names;
}

const SourceTypeInfo& source_type_info(SourceType type) {
  return kTypes[static_cast<size_t>(type)];
}

uint64_t source_bytes(SourceType type, uint64_t n) {
  const SourceTypeInfo& info = source_type_info(type);
  return n / info.block * info.bytes;
}

uint64_t stored_bytes(const SourceTensor& tensor) {
  return source_bytes(tensor.type, tensor.n_elements) + source_type_info(tensor.type).tail;
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
    case SourceType::kF8E4M3:
      convert_all<uint8_t>(from, n, to, from_f8_e4m3);
      return true;
    case SourceType::kF8E8M0:
      convert_all<uint8_t>(from, n, to, from_f8_e8m0);
      return true;
    case SourceType::kF64:
      return cast_all<double>(from, n, to);
    default:
      break;
  }
  const SourceTypeInfo& info = source_type_info(type);
  if (info.read_block == nullptr) return cast_integers(type, from, n, to);
  const auto* block = static_cast<const uint8_t*>(from);
  for (size_t i = 0; i < n; i += info.block, block += info.bytes) info.read_block(block, to + i);
  return true;
}

bool convert_to_i64(SourceType type, const void* from, size_t n, int64_t* to) {
  return cast_integers(type, from, n, to);
}

}  // namespace moe
