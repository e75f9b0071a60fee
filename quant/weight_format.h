// SPDX-License-Identifier: MIT
#pragma once
// Description of a weight format. Each format's file defines a struct NameFormat:
//
//   static constexpr WeightFormat info;
//   MOE_INLINE float element(const uint8_t* tile, int32_t cols, int row, int32_t col);
//
// element() defines the layout: the code (integer formats) or value of one element; row is 0..15.
// Compiled for host and device. It suffices for correct matrix products everywhere;
// kernels/cpu/generic/linear.inc and kernels/cuda/matmul/matmul.cu name fast ones. A format with
// scales in its tiles also has
//
//   MOE_INLINE float scale(const uint8_t* tile, int row, int32_t group);
//   MOE_INLINE float minimum(const uint8_t* tile, int row, int32_t group);

#include "quant/format.h"
#include "src/base/inline.h"
#include "src/base/status.h"

namespace moe {

class Random;

constexpr uint32_t scale_bit(ScaleKind kind) { return 1u << static_cast<int>(kind); }
inline constexpr uint32_t kTensorOrRowScales =
    scale_bit(ScaleKind::kTensor) | scale_bit(ScaleKind::kRow);
inline constexpr uint32_t kAllScales = kTensorOrRowScales | scale_bit(ScaleKind::kGroup);

struct WeightFormat {
  const char* name;          // in files and on command lines
  bool integer = false;      // codes times scales, summed as integers; otherwise plain values
  bool table = false;        // integers of tables, not weights
  int max_code = 0;          // integer: codes are in [-max_code, max_code], at most 127
  int32_t group = 0;         // inputs that share a scale in the tile (kGroup); 0: scales lie apart
  bool minimums = false;     // such a group has a minimum too: weight = scale * code + minimum
  int32_t scale_inputs = 0;  // inputs whose scales in the tile share bits: at least a group
  uint32_t scales = scale_bit(ScaleKind::kNone);  // kinds that a matrix may have
  ActPrecision act = ActPrecision::kF32;          // of a layer that says nothing
  uint8_t segment_blocks = 1;  // scales in the tile: what may be invalid is in the first of so many

  /// Bytes of one tile (16 rows) of `cols` inputs.
  size_t (*tile_bytes)(int64_t cols);
  /// element() for a whole row: out (cols). Null: use element().
  void (*read_row)(const uint8_t* tile, int32_t cols, int row, float* out) = nullptr;
  /// element() of 16 rows and inputs [begin, begin + n): out (n, 16). Null: use element().
  void (*read_tile)(const uint8_t* tile, int32_t begin, int32_t n, float* out) = nullptr;
  /// Packs a whole tile, including padding, from n_rows (1..16) rows, row i at source + i * ld. One
  /// of the two is null; for tables both.
  void (*pack_codes)(const int8_t* codes, int64_t ld, int n_rows, int32_t cols,
                     uint8_t* tile) = nullptr;
  void (*pack_values)(const float* values, int64_t ld, int n_rows, int32_t cols,
                      uint8_t* tile) = nullptr;
  /// Packs a whole tile from rows of blocks as files have them, row i at blocks + i * ld, without
  /// change. Then there is no other packer: weights are not quantised to the format.
  void (*pack_blocks)(const uint8_t* blocks, int64_t ld, int n_rows, int32_t cols,
                      uint8_t* tile) = nullptr;
  /// For scales in the tile. Sets those of a packed tile: scales and minimums (n_rows, groups),
  /// rounded to the stored type; minimums may be null.
  void (*pack_scales)(const float* scales, const float* minimums, int n_rows, int32_t cols,
                      uint8_t* tile) = nullptr;
  /// Quantises weights to a whole tile with a small squared error, each square weighted by
  /// importance[col] (null: 1). MOE_ERR_NON_FINITE, MOE_ERR_RANGE.
  Status (*quantise_tile)(const float* w, int64_t ld, int n_rows, int32_t cols,
                          const float* importance, uint8_t* tile) = nullptr;
  /// Where the codes of an input's 16 rows depend on one another: those of the first n_rows with
  /// the least sum of (wanted[r] - scales[r] * codes[r])^2. pack_codes() keeps these, and makes
  /// others the nearest.
  void (*round_rows)(const float* wanted, const float* scales, int n_rows, int8_t* codes) = nullptr;
  /// Quantises one row with one scale. If both are null in an integer format, codes are ternary by
  /// BitNet's absmean over the whole matrix.
  Status (*quantise_row)(const float* w, int64_t n, int8_t* codes, float* scale) = nullptr;

  /// Index of the first 64-byte block with content that no packer writes, or of that in which its
  /// segment begins; or -1. Null: anything is valid. `bytes` is a multiple of 32.
  int64_t (*find_invalid)(const uint8_t* tile, size_t bytes) = nullptr;
  const char* invalid = "";  // what that is, where it is no scale

  // Random weights (synthetic models).
  // Maps random bytes to codes; null: uniform.
  int8_t (*random_code)(uint8_t byte) = nullptr;
  // max_code^2 / mean square of a random code, which gives random weights a variance of 1 / cols
  float spread = 3;  // all codes equally likely
  /// Fast fill of tiles whose columns are a multiple of `random_cols`; null: codes are packed.
  void (*random_tile)(Random& random, size_t bytes, float amplitude, uint8_t* tile) = nullptr;
  int32_t random_cols = 1;

  // Set by quant/formats.h.
  FormatId id = {};
  float (*element)(const uint8_t* tile, int32_t cols, int row, int32_t col) = nullptr;
  float (*scale)(const uint8_t* tile, int row, int32_t group) = nullptr;
  float (*minimum)(const uint8_t* tile, int row, int32_t group) = nullptr;

  constexpr bool ternary() const { return integer && max_code == 1; }
  /// True if its weights come as blocks from a file alone.
  constexpr bool only_blocks() const { return pack_blocks != nullptr; }
  /// True if weights can be rounded to it.
  constexpr bool can_round() const { return !table && !only_blocks(); }
  /// The scale kind for weights given as floats.
  constexpr ScaleKind own_scales() const {
    if (group != 0) return ScaleKind::kGroup;
    if (!integer) return ScaleKind::kNone;
    return quantise_row != nullptr ? ScaleKind::kRow : ScaleKind::kTensor;
  }
  constexpr bool can_have(ScaleKind kind) const { return (scales & scale_bit(kind)) != 0; }
};

}  // namespace moe
