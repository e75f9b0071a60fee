// SPDX-License-Identifier: MIT
#pragma once
// Weights with scales in the tile (quant/group_layout.h) as operands of mma.m16n8k32. Its 32 inputs
// are one group, or two: sums of a group are exact, and are scaled before those of the next group
// are added.

#include <type_traits>

#include "kernels/cuda/matmul/element.h"
#include "kernels/cuda/matmul/matmul_mma.cuh"

namespace moe::cuda {

inline constexpr int kStepGroups = kStep / kTileGroup;  // units per step

/// A format (see Ternary2Mma) whose units are groups. Lane q has inputs 8 q .. 8 q + 7 of a group,
/// in its operands of weights and of activations. Four bits: one block and four rows of it, as in
/// ternary2. int8_group: two blocks, and rows as in int8.
template <class FormatLayout>
struct GroupMma {
  using Layout = FormatLayout;
  static constexpr bool kFourBits = Layout::kGroupBytes == 4 * kBlockBytes;
  using Unit = std::conditional_t<kFourBits, uint4, Fragment>;
  static constexpr int kUnits = kStepGroups;
  static constexpr int kCols = kFourBits ? 8 : 4;
  static constexpr int kLaneBlocks = 8 / kCols;
  static constexpr int kStepBlocks = kStep / kCols;
  static constexpr int kLaneBytes = kFourBits ? 16 : 8;
  static constexpr bool kUnsigned = false;
  static __device__ __forceinline__ int lane_block(int q) { return q * kLaneBlocks; }
  static __device__ __forceinline__ int first(int unit) { return unit * (kTileGroup / kCols); }

  static __device__ __forceinline__ int64_t offset(int32_t step, int unit) {
    if constexpr (kStepGroups % Layout::kGroups == 0) {  // a step has whole segments
      const int64_t stride = Layout::codes_at(kStepGroups) - Layout::codes_at(0);
      return step * stride + Layout::codes_at(unit);
    }
    return Layout::codes_at(step * kStepGroups + unit);
  }

  template <bool kOnce>
  static __device__ __forceinline__ Unit load(const uint8_t* p, int32_t left) {
    if constexpr (kFourBits) {
      if (left <= 0) return {0, 0, 0, 0};
      return kOnce ? load_once(p) : load_in_turn(p);
    } else {
      return Int8Mma::load<kOnce>(p, left);
    }
  }

  static __device__ __forceinline__ Fragment fragment(const Unit& w) {
    if constexpr (kFourBits) {
      const uint2 a = four_bit_values<Layout>(w.x);
      const uint2 b = four_bit_values<Layout>(w.y);
      const uint2 c = four_bit_values<Layout>(w.z);
      const uint2 d = four_bit_values<Layout>(w.w);
      return {{{a.x, b.x, a.y, b.y}, {c.x, d.x, c.y, d.y}}};
    } else {
      return w;
    }
  }
};

/// int6_k: as four bits, with the two upper bits in a block that two lanes share. The first two
/// lanes have the unit's first group, the others the second.
template <>
struct GroupMma<Int6KFormat> {
  using Layout = Int6KFormat;
  struct Unit {
    uint4 low;
    uint4 high;
  };
  static constexpr int kUnits = kStepGroups;
  static constexpr int kCols = 8;  // per block of lower bits; only these are counted as blocks
  static constexpr int kLaneBlocks = 1;
  static constexpr int kStepBlocks = kStep / kCols;
  static constexpr int kLaneBytes = 16;
  static constexpr bool kUnsigned = false;
  static constexpr int kGroupBlocks = Layout::kGroupBytes / kBlockBytes;
  static __device__ __forceinline__ int lane_block(int q) { return q / 2 * kGroupBlocks + q % 2; }
  static __device__ __forceinline__ int first(int unit) { return unit * (kTileGroup / kCols); }
  static __device__ __forceinline__ int64_t offset(int32_t step, int unit) {
    return Layout::codes_at(2 * (step * kStepGroups + unit));
  }

  template <bool kOnce>
  static __device__ __forceinline__ Unit load(const uint8_t* p, int32_t left) {
    if (left <= 0) return {{0, 0, 0, 0}, {0, 0, 0, 0}};
    const uint8_t* high = p + Layout::kHigh - odd_lane() * kBlockBytes;
    if constexpr (kOnce) return {load_once(p), load_once(high)};
    return {load_in_turn(p), load_in_turn(high)};
  }

  static __device__ __forceinline__ Fragment fragment(const Unit& w) {
    const int shift = odd_lane() * 4;
    const uint2 a = six_bit_values(w.low.x, w.high.x >> shift);
    const uint2 b = six_bit_values(w.low.y, w.high.y >> shift);
    const uint2 c = six_bit_values(w.low.z, w.high.z >> shift);
    const uint2 d = six_bit_values(w.low.w, w.high.w >> shift);
    return {{{a.x, b.x, a.y, b.y}, {c.x, d.x, c.y, d.y}}};
  }

 private:
  static __device__ __forceinline__ int odd_lane() { return static_cast<int>(threadIdx.x % 2); }
};

/// Groups of a unit.
template <class Format>
inline constexpr int kUnitGroups = kTileGroup / Format::Layout::kGroupInputs;

/// The lane's activations of a unit, 0 outside of the unit's group h.
template <class Format>
__device__ __forceinline__ uint2 codes_of_group(const uint2& x, int h) {
  if constexpr (kUnitGroups<Format> == 1) return x;
  const bool own = static_cast<int>(threadIdx.x % 4 / 2) == h;
  return {own ? x.x : 0u, own ? x.y : 0u};
}

template <class Format>
inline constexpr bool kInTile = requires {
  typename Format::Layout;
};

/// Scale and minimum of the row that the lane finishes; 0 outside of the matrix.
template <class Format>
__device__ __forceinline__ GroupScales scales_of_lane(const LaneTile& t, int32_t group) {
  using Layout = typename Format::Layout;
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  if (!t.valid || group * Layout::kGroupInputs >= t.weight.matrix.cols)
    return {0, 0, Layout::kMinimums};
  return group_scales<Layout>(t.p - lane_offset<Format>(lane), lane % kTileRows, group);
}

/// Activation scales of an input row: that of inputs 32 g .. has the index g >> shift.
struct RowScales {
  const float* first;
  int32_t shift;

  __device__ __forceinline__ RowScales(const Codes& codes, const Matrix& m, int32_t input)
      : first(codes.scales + int64_t{input} * n_act_scales(m)),
        shift(m.act == ActPrecision::kA8Group   ? 0
              : m.act == ActPrecision::kA8Block ? 3
                                                : 31) {
    static_assert(kActBlock == kTileGroup << 3);
  }
  __device__ __forceinline__ float at(int32_t group) const { return first[group >> shift]; }
};

/// Sums of the codes of a group, for rows 2 (lane % 4) and the next of eight; `x`: the lane's
/// operands.
__device__ __forceinline__ int2 input_sums(const uint2& x) {
  constexpr uint32_t kOnes = 0x01010101u;
  int32_t sums[4] = {};
  mma_s8s8(sums, kOnes, kOnes, kOnes, kOnes, x.x, x.y);
  return {sums[0], sums[1]};
}

/// total + the products of a group, scaled: `sum` of the codes' products, `inputs` of the
/// activations' codes.
template <class Layout>
__device__ __forceinline__ float add_group(float total, int32_t sum, int32_t inputs, float sx,
                                           float scale, float minimum) {
  total = fused(static_cast<float>(sum), sx * scale, total);
  if constexpr (Layout::kMinimums) {
    total = fused(static_cast<float>(inputs) * sx, minimum, total);
  }
  return total;
}

/// Calls run.operator()<Layout>() for a format with scales in the tile.
template <class Run>
cudaError_t with_group_layout(FormatId format, const Run& run) {
  switch (format) {
#define MOE_WEIGHT_FORMAT(Name, header)               \
  case FormatId::k##Name:                             \
    if constexpr (kHasGroupMma<Name##Format>) {       \
      return run.template operator()<Name##Format>(); \
    }                                                 \
    break;
#include "quant/list.h"
#undef MOE_WEIGHT_FORMAT
  }
  return cudaErrorInvalidValue;
}

}  // namespace moe::cuda
