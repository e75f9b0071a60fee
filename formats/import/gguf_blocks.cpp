// SPDX-License-Identifier: MIT
// One function per GGUF block type.
#include "formats/import/gguf_blocks.h"

#include <cmath>

#include "formats/import/source_tensor.h"

namespace moe {
namespace {

constexpr uint8_t kPowersOf3[] = {1, 3, 9, 27, 81};

// A byte stores base-3 digits as a fraction of 256, most significant first.
int digit(uint8_t byte, int i) { return static_cast<uint8_t>(byte * kPowersOf3[i]) * 3 >> 8; }

// Codes + 1, 2 bits each, lowest first.
template <int N>
void read_codes_of_2(const uint8_t* block, float* to) {
  const float scale = f16_at(block);
  for (int i = 0; i < N; ++i) {
    to[i] = static_cast<float>((block[2 + i / 4] >> (i % 4 * 2) & 3) - 1) * scale;
  }
}

// The fifth bits of 32 codes.
uint32_t word_at(const uint8_t* p) {
  uint32_t word = 0;
  for (int i = 3; i >= 0; --i) word = word << 8 | p[i];
  return word;
}

}  // namespace

// In all 4-bit types a byte holds codes i and i + 16.
void read_q4_0(const uint8_t* block, float* to) {
  const float scale = f16_at(block);
  for (int i = 0; i < 16; ++i) {
    to[i] = static_cast<float>((block[2 + i] & 15) - 8) * scale;
    to[16 + i] = static_cast<float>((block[2 + i] >> 4) - 8) * scale;
  }
}

// scale, minimum, codes
void read_q4_1(const uint8_t* block, float* to) {
  const float scale = f16_at(block), minimum = f16_at(block + 2);
  for (int i = 0; i < 16; ++i) {
    to[i] = static_cast<float>(block[4 + i] & 15) * scale + minimum;
    to[16 + i] = static_cast<float>(block[4 + i] >> 4) * scale + minimum;
  }
}

// scale, fifth bits, codes
void read_q5_0(const uint8_t* block, float* to) {
  const float scale = f16_at(block);
  const uint32_t high = word_at(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int low = block[6 + i];
    to[i] = static_cast<float>((low & 15) + static_cast<int>(high >> i & 1) * 16 - 16) * scale;
    to[16 + i] =
        static_cast<float>((low >> 4) + static_cast<int>(high >> (i + 16) & 1) * 16 - 16) * scale;
  }
}

// scale, minimum, fifth bits, codes
void read_q5_1(const uint8_t* block, float* to) {
  const float scale = f16_at(block), minimum = f16_at(block + 2);
  const uint32_t high = word_at(block + 4);
  for (int i = 0; i < 16; ++i) {
    const int low = block[8 + i];
    to[i] = static_cast<float>((low & 15) + static_cast<int>(high >> i & 1) * 16) * scale + minimum;
    to[16 + i] =
        static_cast<float>((low >> 4) + static_cast<int>(high >> (i + 16) & 1) * 16) * scale +
        minimum;
  }
}

// scale, then 32 int8
void read_q8_0(const uint8_t* block, float* to) {
  const float scale = f16_at(block);
  for (int i = 0; i < 32; ++i) {
    to[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
  }
}

// scale, codes
void read_iq4_nl(const uint8_t* block, float* to) {
  const float scale = f16_at(block);
  for (int i = 0; i < 16; ++i) {
    to[i] = static_cast<float>(kIq4Values[block[2 + i] & 15]) * scale;
    to[16 + i] = static_cast<float>(kIq4Values[block[2 + i] >> 4]) * scale;
  }
}

// exponent of 2 plus 127, then codes
void read_mxfp4(const uint8_t* block, float* to) {
  const float scale = block[0] == 255 ? NAN : std::ldexp(1.0f, block[0] - 127);
  for (int i = 0; i < 16; ++i) {
    to[i] = kFp4Values[block[1 + i] & 15] * scale;
    to[16 + i] = kFp4Values[block[1 + i] >> 4] * scale;
  }
}

// scale, codes
void read_q2_0(const uint8_t* block, float* to) { read_codes_of_2<64>(block, to); }
void read_q2_0_group128(const uint8_t* block, float* to) { read_codes_of_2<128>(block, to); }

// Codes + 1, 2 bits each: two times 32 bytes, each with elements 32 apart; then the scale.
void read_tq2_0(const uint8_t* block, float* to) {
  const float scale = f16_at(block + 64);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, bits = i % 128 / 32 * 2;
    to[i] = static_cast<float>((block[32 * half + i % 32] >> bits & 3) - 1) * scale;
  }
}

// scale, then a bit per element: 1 is the scale, 0 its negative
void read_q1_0(const uint8_t* block, float* to) {
  const float scale = f16_at(block);
  for (int i = 0; i < 128; ++i) to[i] = (block[2 + i / 8] >> i % 8 & 1) != 0 ? scale : -scale;
}

// Codes + 1 as digits of base 3, `n_digits` to a byte: the first digits of all bytes, the second
// ones and so on.
float* put_digits(const uint8_t* bytes, int n_bytes, int n_digits, float scale, float* to) {
  for (int d = 0; d < n_digits; ++d) {
    for (int i = 0; i < n_bytes; ++i) *to++ = static_cast<float>(digit(bytes[i], d) - 1) * scale;
  }
  return to;
}

// Five digits to a byte: 32 bytes, then 16; four to a byte: 4 bytes; then the scale.
void read_tq1_0(const uint8_t* block, float* to) {
  const float scale = f16_at(block + 52);
  to = put_digits(block, 32, 5, scale, to);
  to = put_digits(block + 32, 16, 5, scale, to);
  put_digits(block + 48, 4, 4, scale, to);
}

// The same with 16 and 8 bytes, then 2.
void read_ptq1_0(const uint8_t* block, float* to) {
  const float scale = f16_at(block + 26);
  to = put_digits(block, 16, 5, scale, to);
  to = put_digits(block + 16, 8, 5, scale, to);
  put_digits(block + 24, 2, 4, scale, to);
}

void scales_of_q4_0(const uint8_t* block, float* scales, float* minimums) {
  *scales = f16_at(block);
  *minimums = 0;
}

void scales_of_q4_1(const uint8_t* block, float* scales, float* minimums) {
  *scales = f16_at(block);
  *minimums = f16_at(block + 2);
}

void scales_of_iq4_nl(const uint8_t* block, float* scales, float* minimums) {
  scales_of_q4_0(block, scales, minimums);
}

void scales_of_mxfp4(const uint8_t* block, float* scales, float* minimums) {
  *scales = std::ldexp(1.0f, block[0] - 128);
  *minimums = 0;
}

}  // namespace moe
