// SPDX-License-Identifier: MIT
#pragma once
// Inputs and results of the primitives of an Isa. Includes C headers only.
#include <stdint.h>

// A lambda has the caller's target flags only if it is inlined.
#define MOE_PROBE_INLINE __attribute__((always_inline))

namespace moe {

struct ProbeIn {
  float a[16], b[16], c[16];
  int32_t i[16], j[16];
  uint16_t half[16];
  int8_t bytes[16];
  uint8_t ternary2[64];  // fields 0..2
  uint8_t ternary3[64];  // 0..242
  uint8_t int8[64];      // two's complement, -127..127
};

struct ProbeOut {
  float f[80][16];
  int32_t i[96][16];
  uint16_t half[18][16];
  int8_t bytes[18][16];
  int n_f, n_i;
};

}  // namespace moe
