// SPDX-License-Identifier: MIT
#pragma once
// The codebooks of quant/codebook_entries.h as kernels use them: an entry is a lane of four-bit
// codes. Eight inputs fill a lane of 32 bits: input j < 4 the lower half of byte j, input 4 + j the
// upper half. Plain C headers only: the files of kernels/cpu/isa include this.

#include <stddef.h>

#include "quant/codebook_entries.h"
#include "src/base/inline.h"

namespace moe {

template <size_t N>
struct CodebookTable {
  uint32_t lanes[N];
};

/// Where a lane has the code of input j of eight.
MOE_INLINE constexpr int lane_shift(int j) { return 8 * (j % 4) + 4 * (j / 4); }

/// Eight codes of two bits as a lane.
constexpr uint32_t lane_of_eight(uint32_t entry) {
  uint32_t lane = 0;
  for (int j = 0; j < 8; ++j) lane |= (entry >> 2 * j & 3) << lane_shift(j);
  return lane;
}
/// Four codes of three bits in the lower halves of a lane's bytes.
constexpr uint32_t lane_of_four(uint32_t entry) {
  uint32_t lane = 0;
  for (int j = 0; j < 4; ++j) lane |= (entry >> 3 * j & 7) << 8 * j;
  return lane;
}
template <size_t N>
constexpr CodebookTable<N> lanes_of_eight(const uint16_t (&entries)[N]) {
  CodebookTable<N> out = {};
  for (size_t i = 0; i < N; ++i) out.lanes[i] = lane_of_eight(entries[i]);
  return out;
}
template <size_t N>
constexpr CodebookTable<N> lanes_of_four(const uint16_t (&entries)[N]) {
  CodebookTable<N> out = {};
  for (size_t i = 0; i < N; ++i) out.lanes[i] = lane_of_four(entries[i]);
  return out;
}

// The fourth bits of eight codes. They are computed, because kernels do that for many rows at once.

/// Set where a bit of `signs` is. The terms meet only where the mask has no bit.
template <class Value>
MOE_INLINE constexpr Value lane_of_signs(Value signs) {
  const Value two = signs | signs << 7;
  return (two | two << 14) << 3 & 0x88888888u;
}
/// The same for seven signs and an eighth, which makes their number even: the sum of the seven is
/// above all carries, and its lowest bit in the lane's highest.
template <class Value>
MOE_INLINE constexpr Value lane_of_even_signs(Value seven) {
  const Value lane = seven * 0x01020408u & 0x88888888u;
  return lane | (lane * 0x11111111u & 0x80000000u);
}
/// All of them for a bit that is 1, none for 0.
template <class Value>
MOE_INLINE constexpr Value lane_of_shift(Value bit) {
  return bit * 0x88888888u;
}

// A table that host and device read, each its own copy.
#if defined(__CUDACC__)
#define MOE_CODEBOOK_TABLE(name, Name, N, make)                           \
  inline constexpr CodebookTable<N> k##Name##Table = make;                \
  static __device__ const CodebookTable<N> k##Name##TableOnDevice = make; \
  MOE_INLINE uint32_t name(uint32_t index) { return MOE_CODEBOOK_READ(Name).lanes[index]; }
#else
#define MOE_CODEBOOK_TABLE(name, Name, N, make)            \
  inline constexpr CodebookTable<N> k##Name##Table = make; \
  MOE_INLINE uint32_t name(uint32_t index) { return MOE_CODEBOOK_READ(Name).lanes[index]; }
#endif
#if defined(__CUDA_ARCH__)
#define MOE_CODEBOOK_READ(Name) k##Name##TableOnDevice
#else
#define MOE_CODEBOOK_READ(Name) k##Name##Table
#endif

MOE_CODEBOOK_TABLE(iq2_xxs_lane, Iq2Xxs, 256, lanes_of_eight(kIq2XxsEntries))
MOE_CODEBOOK_TABLE(iq2_xs_lane, Iq2Xs, 512, lanes_of_eight(kIq2XsEntries))
MOE_CODEBOOK_TABLE(iq2_s_lane, Iq2S, 1024, lanes_of_eight(kIq2SEntries))
MOE_CODEBOOK_TABLE(iq3_xxs_lane, Iq3Xxs, 256, lanes_of_four(kIq3XxsEntries))
MOE_CODEBOOK_TABLE(iq3_s_lane, Iq3S, 512, lanes_of_four(kIq3SEntries))
MOE_CODEBOOK_TABLE(iq1_lane, Iq1, 2048, lanes_of_eight(kIq1Entries))

#undef MOE_CODEBOOK_TABLE
#undef MOE_CODEBOOK_READ

}  // namespace moe
