#include "formats/import/gguf_blocks.h"

#include <cmath>

namespace moe {
namespace {

constexpr uint8_t kPowersOf3[] = {1, 3, 9, 27, 81};

float scale_at(const uint8_t* p) { return from_f16(static_cast<uint16_t>(p[0] | p[1] << 8)); }

// scale, then 32 int8
void read_q8_0(const uint8_t* block, float* to) {
  const float scale = scale_at(block);
  for (int i = 0; i < 32; ++i) {
    to[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
  }
}

// Codes + 1 of 2 bits: two times 32 bytes, each of which holds elements 32 apart; then the scale.
void read_tq2_0(const uint8_t* block, float* to) {
  const float scale = scale_at(block + 64);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, bits = i % 128 / 32 * 2;
    to[i] = static_cast<float>((block[32 * half + i % 32] >> bits & 3) - 1) * scale;
  }
}

// A byte holds digits base 3 as a fraction of 256, the first digit first.
int digit(uint8_t byte, int i) { return static_cast<uint8_t>(byte * kPowersOf3[i]) * 3 >> 8; }

// Codes + 1, five to a byte: 32 bytes, then 16; four to a byte: 4 bytes; then the scale.
void read_tq1_0(const uint8_t* block, float* to) {
  const float scale = scale_at(block + 52);
  const auto put = [&](const uint8_t* bytes, int n_bytes, int n_digits) {
    for (int d = 0; d < n_digits; ++d) {
      for (int i = 0; i < n_bytes; ++i) {
        *to++ = static_cast<float>(digit(bytes[i], d) - 1) * scale;
      }
    }
  };
  put(block, 32, 5);
  put(block + 32, 16, 5);
  put(block + 48, 4, 4);
}

// scale, then codes + 1 of 2 bits, the lowest first
void read_q2_0(const uint8_t* block, int n, float* to) {
  const float scale = scale_at(block);
  for (int i = 0; i < n; ++i) {
    to[i] = static_cast<float>((block[2 + i / 4] >> (i % 4 * 2) & 3) - 1) * scale;
  }
}

// exponent of 2 plus 127, then 16 bytes of FP4 (E2M1): elements i and i + 16
void read_mxfp4(const uint8_t* block, float* to) {
  constexpr float kValues[] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const float scale = std::ldexp(1.0f, block[0] - 127);
  for (int i = 0; i < 16; ++i) {
    to[i] = kValues[block[1 + i] & 15] * scale;
    to[16 + i] = kValues[block[1 + i] >> 4] * scale;
  }
}

}  // namespace

void read_blocks(SourceType type, const void* from, size_t n, float* to) {
  const SourceTypeInfo& info = source_type_info(type);
  const auto* block = static_cast<const uint8_t*>(from);
  for (size_t b = 0; b < n; ++b, block += info.bytes, to += info.block) {
    if (type == SourceType::kQ8_0) {
      read_q8_0(block, to);
    } else if (type == SourceType::kTq1_0) {
      read_tq1_0(block, to);
    } else if (type == SourceType::kTq2_0) {
      read_tq2_0(block, to);
    } else if (type == SourceType::kBlockMxfp4) {
      read_mxfp4(block, to);
    } else {
      read_q2_0(block, static_cast<int>(info.block), to);
    }
  }
}

}  // namespace moe
