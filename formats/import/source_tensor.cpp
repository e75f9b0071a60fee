// SPDX-License-Identifier: MIT
// The table of element types, their sizes and names, and their conversion to float or integers.
#include "formats/import/source_tensor.h"

#include <bit>
#include <cstring>

#include "formats/import/gguf_blocks.h"

namespace moe {
namespace {

constexpr SourceTypeInfo kTypes[] = {
#define MOE_SOURCE_TYPE(id, ...) {.type = SourceType::id, __VA_ARGS__},
#define MOE_GGUF_TYPE(id, function, ...) \
  {.type = SourceType::id, .floating = true, __VA_ARGS__, .read_block = read_##function},
#include "formats/import/source_types.h"
};

constexpr struct {
  uint32_t number;
  const char* name;
} kUnreadable[] = {
#define MOE_GGUF_OTHER(number, name) {number, name},
#include "formats/import/source_types.h"
};

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

std::string unreadable_gguf_type(uint32_t number) {
  for (const auto& type : kUnreadable) {
    if (type.number == number) return type.name;
  }
  return "number " + std::to_string(number);
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
