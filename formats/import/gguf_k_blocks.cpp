// SPDX-License-Identifier: MIT
// Blocks of 256 values with 8 or 16 sub-blocks, whose scales are integers times a float16.

#include "formats/import/gguf_blocks.h"
#include "formats/import/source_tensor.h"

namespace moe {
namespace {

struct ScaleMin {
  float scale, minimum;  // value = code * scale - minimum
};

// 8 scales and 8 minimums of six bits in 12 bytes: the first four of each in the low bits of their
// own bytes, whose upper bits are the upper bits of the last four.
ScaleMin scale_and_min(const uint8_t* block, int i) {
  const float scale = f16_at(block), minimum = f16_at(block + 2);
  const uint8_t* p = block + 4;
  const int s = i < 4 ? p[i] & 63 : (p[i + 4] & 15) | p[i - 4] >> 6 << 4;
  const int m = i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | p[i] >> 6 << 4;
  return {scale * static_cast<float>(s), minimum * static_cast<float>(m)};
}

// Scale of group g of IQ4_XS.
float iq4_xs_scale(const uint8_t* block, int g) {
  const int low = block[4 + g / 2] >> (g % 2 * 4) & 15;
  const int high = block[2 + g / 4] >> (g % 4 * 2) & 3;
  return f16_at(block) * static_cast<float>((low | high << 4) - 32);
}

float q2_k_scale(const uint8_t* block, int g) {
  return f16_at(block + 80) * static_cast<float>(block[g] & 15);
}
float q2_k_minimum(const uint8_t* block, int g) {
  return f16_at(block + 82) * static_cast<float>(block[g] >> 4);
}

float q3_k_scale(const uint8_t* block, int g) {
  const int low = block[96 + g % 8] >> (g / 8 * 4) & 15;
  const int high = block[104 + g % 4] >> (g / 4 * 2) & 3;
  return f16_at(block + 108) * static_cast<float>((low | high << 4) - 32);
}

float q6_k_scale(const uint8_t* block, int g) {
  return f16_at(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + g]));
}

}  // namespace

// 16 x (scale, minimum) of 4 bits, codes of 2 bits as in TQ2_0, scale, minimum
void read_q2_k(const uint8_t* block, float* to) {
  for (int g = 0; g < 16; ++g, to += 16) {
    const float s = q2_k_scale(block, g), m = q2_k_minimum(block, g);
    const uint8_t* codes = block + 16 + g / 8 * 32 + g % 2 * 16;
    const int bits = g % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) to[i] = s * static_cast<float>(codes[i] >> bits & 3) - m;
  }
}

// 32 bytes of third bits (0: 4 less), codes of 2 bits, 16 scales + 32 of 6 bits: 8 bytes with the
// lower four, 4 with the upper two; scale
void read_q3_k(const uint8_t* block, float* to) {
  for (int g = 0; g < 16; ++g, to += 16) {
    const float s = q3_k_scale(block, g);
    const uint8_t* codes = block + 32 + g / 8 * 32 + g % 2 * 16;
    const uint8_t* third = block + g % 2 * 16;
    const int bits = g % 8 / 2 * 2, bit = g / 2;
    for (int i = 0; i < 16; ++i) {
      const int code = (codes[i] >> bits & 3) - (third[i] >> bit & 1 ? 0 : 4);
      to[i] = s * static_cast<float>(code);
    }
  }
}

// scale, minimum, 12 bytes of scales and minima, 128 bytes: each 32 hold 32 codes low, 32 high
void read_q4_k(const uint8_t* block, float* to) {
  for (int g = 0; g < 8; ++g, to += 32) {
    const ScaleMin sm = scale_and_min(block, g);
    const uint8_t* codes = block + 16 + g / 2 * 32;
    const int bits = g % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      to[i] = sm.scale * static_cast<float>(codes[i] >> bits & 15) - sm.minimum;
    }
  }
}

// The same, with 32 bytes of fifth bits before the codes.
void read_q5_k(const uint8_t* block, float* to) {
  for (int g = 0; g < 8; ++g, to += 32) {
    const ScaleMin sm = scale_and_min(block, g);
    const uint8_t* codes = block + 48 + g / 2 * 32;
    const int bits = g % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int code = (codes[i] >> bits & 15) | (block[16 + i] >> g & 1) << 4;
      to[i] = sm.scale * static_cast<float>(code) - sm.minimum;
    }
  }
}

// 128 bytes of lower four bits, 64 of upper two, 16 scales of int8, scale
void read_q6_k(const uint8_t* block, float* to) {
  for (int g = 0; g < 16; ++g, to += 16) {
    const float s = q6_k_scale(block, g);
    const uint8_t* low = block + g / 8 * 64 + g % 4 * 16;
    const uint8_t* high = block + 128 + g / 8 * 32 + g % 2 * 16;
    const int bits = g % 8 / 4 * 4, high_bits = g % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      const int code = (low[i] >> bits & 15) | (high[i] >> high_bits & 3) << 4;
      to[i] = s * static_cast<float>(code - 32);
    }
  }
}

// scale, 8 scales + 32 of 6 bits: 16 bits with the upper two, 4 bytes with the lower four; codes
void read_iq4_xs(const uint8_t* block, float* to) {
  for (int g = 0; g < 8; ++g, to += 32) {
    const float s = iq4_xs_scale(block, g);
    const uint8_t* codes = block + 8 + g * 16;
    for (int i = 0; i < 16; ++i) {
      to[i] = s * static_cast<float>(kIq4Values[codes[i] & 15]);
      to[16 + i] = s * static_cast<float>(kIq4Values[codes[i] >> 4]);
    }
  }
}

void scales_of_q2_k(const uint8_t* block, float* scales, float* minimums) {
  for (int g = 0; g < 16; ++g) {
    scales[g] = q2_k_scale(block, g);
    minimums[g] = -q2_k_minimum(block, g);
  }
}

void scales_of_q3_k(const uint8_t* block, float* scales, float* minimums) {
  for (int g = 0; g < 16; ++g) {
    scales[g] = q3_k_scale(block, g);
    minimums[g] = 0.0f;
  }
}

void scales_of_q6_k(const uint8_t* block, float* scales, float* minimums) {
  for (int g = 0; g < 16; ++g) {
    scales[g] = q6_k_scale(block, g);
    minimums[g] = 0.0f;
  }
}

void scales_of_q4_k(const uint8_t* block, float* scales, float* minimums) {
  for (int g = 0; g < 8; ++g) {
    const ScaleMin sm = scale_and_min(block, g);
    scales[g] = sm.scale;
    minimums[g] = -sm.minimum;
  }
}

void scales_of_iq4_xs(const uint8_t* block, float* scales, float* minimums) {
  for (int g = 0; g < 8; ++g) {
    scales[g] = iq4_xs_scale(block, g);
    minimums[g] = 0;
  }
}

}  // namespace moe
