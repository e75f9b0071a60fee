// SPDX-License-Identifier: MIT
// Matrix and dot-product instructions as the PTX manual (ISA 8.x) describes them.

#include "emulator.h"
#include "quant/half.h"

namespace emulator {
namespace {

template <class T>
T byte_of(uint32_t word, int i) {
  return static_cast<T>(word >> (8 * i) & 0xff);
}

struct Operands {
  uint32_t a[4];
  uint32_t b[2];
};

// One register of another lane. Copying all registers would be a slow call under ASan.
uint32_t register_of(const Exchange& e, int lane, size_t i) {
  uint32_t word;
  memcpy(&word, &e.of[lane].bytes[4 * i], sizeof word);
  return word;
}
uint32_t a_of(const Exchange& e, int lane, int i) {
  return register_of(e, lane, static_cast<size_t>(i));
}
uint32_t b_of(const Exchange& e, int lane, int i) {
  return register_of(e, lane, static_cast<size_t>(4 + i));
}

double half_of(uint32_t word, int i) {
  return static_cast<double>(moe::f16_to_f32(static_cast<uint16_t>(word >> (16 * i))));
}

template <class A>
int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
  for (int i = 0; i < 4; ++i) c += int32_t{byte_of<A>(a, i)} * byte_of<int8_t>(b, i);
  return c;
}

// c (16, 8) += a (16, 32) b (32, 8): lane 4 g + q holds four consecutive k of row or column g.
template <class A>
void mma_bytes(const char* what, int32_t (&c)[4], const Operands& mine) {
  const Exchange& e = exchange(what, ~0u, &mine, sizeof mine);
  const int g = lane() / 4;
  const int q = lane() % 4;
  for (int q_k = 0; q_k < 4; ++q_k) {
    for (int i = 0; i < 4; ++i) {
      const int in_a = g * 4 + q_k;
      const int in_b = (2 * q + i % 2) * 4 + q_k;
      c[i] = dot4<A>(a_of(e, in_a, i / 2), b_of(e, in_b, 0), c[i]);
      c[i] = dot4<A>(a_of(e, in_a, i / 2 + 2), b_of(e, in_b, 1), c[i]);
    }
  }
}

}  // namespace

uint16_t half_bits(float x) { return moe::f32_to_f16(x); }
float half_value(uint16_t bits) { return moe::f16_to_f32(bits); }

int32_t dp4a_u8(uint32_t a, uint32_t b, int32_t c) { return dot4<uint8_t>(a, b, c); }
int32_t dp4a_s8(uint32_t a, uint32_t b, int32_t c) { return dot4<int8_t>(a, b, c); }

void mma_u8s8(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
              uint32_t b1) {
  mma_bytes<uint8_t>("mma_u8s8", c, {{a0, a1, a2, a3}, {b0, b1}});
}
void mma_s8s8(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
              uint32_t b1) {
  mma_bytes<int8_t>("mma_s8s8", c, {{a0, a1, a2, a3}, {b0, b1}});
}

void mma_f16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
             uint32_t b1) {
  const Operands mine{{a0, a1, a2, a3}, {b0, b1}};
  const Exchange& e = exchange("mma_f16", ~0u, &mine, sizeof mine);
  const int g = lane() / 4;
  const int q = lane() % 4;
  double a[2][16], b[2][16];  // rows g and g + 8, columns 2 q and 2 q + 1
  for (int k = 0; k < 16; ++k) {
    const int q_k = k / 2 % 4;
    for (int i = 0; i < 2; ++i) {
      a[i][k] = half_of(a_of(e, g * 4 + q_k, i + 2 * (k / 8)), k % 2);
      b[i][k] = half_of(b_of(e, (2 * q + i) * 4 + q_k, k / 8), k % 2);
    }
  }
  for (int i = 0; i < 4; ++i) {
    double sum = c[i];
    for (int k = 0; k < 16; ++k) sum += a[i / 2][k] * b[i % 2][k];
    c[i] = static_cast<float>(sum);
  }
}

void ldmatrix_x4(uint32_t (&out)[4], const void* row) {
  check_aligned("a matrix row that is not aligned", row, 16);
  const Exchange& e = exchange("ldmatrix", ~0u, &row, sizeof row);
  for (int m = 0; m < 4; ++m) {
    const auto* source = static_cast<const uint8_t*>(value_of<const void*>(e, 8 * m + lane() / 4));
    memcpy(&out[m], source + 4 * (lane() % 4), 4);
  }
}

void ldmatrix_x4_turned(uint32_t (&out)[4], const void* row) {
  check_aligned("a matrix row that is not aligned", row, 16);
  const Exchange& e = exchange("ldmatrix.trans", ~0u, &row, sizeof row);
  for (int m = 0; m < 4; ++m) {
    uint16_t halves[2];
    for (int i = 0; i < 2; ++i) {
      const int source_row = 2 * (lane() % 4) + i;
      const auto* source =
          static_cast<const uint8_t*>(value_of<const void*>(e, 8 * m + source_row));
      memcpy(&halves[i], source + 2 * (lane() / 4), 2);
    }
    memcpy(&out[m], halves, 4);
  }
}

}  // namespace emulator
