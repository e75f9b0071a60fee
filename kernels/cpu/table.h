// SPDX-License-Identifier: MIT
#pragma once
// The functions of one instruction set as a table. kernels/cpu/isa/<isa>.cpp compile them from the
// same source (kernels/cpu/generic), so results are bit-identical. Plain C headers only.

#include <stddef.h>
#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/cpu/fast_formats.h"
#include "kernels/cpu/lanes.h"
#include "kernels/mixers/all.h"
#include "kernels/mixers/info.h"
#include "quant/activation.h"
#include "quant/codebook_layout.h"
#include "quant/few_bits_layout.h"
#include "quant/format.h"
#include "quant/four_bit_layout.h"
#include "quant/half.h"
#include "quant/int6_k_layout.h"
#include "quant/int8_group_layout.h"
#include "quant/ternary3_layout.h"
#include "quant/trellis_layout.h"
#include "src/base/inline.h"

namespace moe {

/// Inputs between two entries of LinearInput::sums.
inline constexpr int kSumInputs = 16;

/// Rows of one input, quantised for one activation precision; see linear_input_bytes(). The table
/// defines the layout of codes (most store groups of rows four by four, amx 64 by 64): only
/// linear() of the same table can read what its quantise_rows() wrote. Codes are zero from n_cols
/// to padded_cols.
struct LinearInput {
  ActPrecision act = ActPrecision::kF32;
  int32_t n_rows = 0;
  int32_t n_cols = 0;
  // kF32: the rows themselves.
  const float* x = nullptr;  // row i at x + (row_ids ? row_ids[i] : i) * ld_x
  int64_t ld_x = 0;
  const int32_t* row_ids = nullptr;
  // Otherwise.
  int32_t padded_cols = 0;  // n_cols rounded up to 256
  int8_t* codes = nullptr;  // 64-byte aligned
  float* scales = nullptr;  // (n_rows, n_scales); NaN if a row contains NaN or infinity
  int32_t n_scales = 0;     // kA8: 1; kA8Block: padded_cols / 256; kA8Group: padded_cols / 32
  int32_t* sums = nullptr;  // (n_rows, padded_cols / 16 + 1): sum of all codes before input 16 i
  // (n_rows, padded_cols / 32): sum of the codes of 32 inputs, times their scale
  float* scaled_sums = nullptr;
};

/// y (n_rows, ld_y): rows [16 tile_begin, 16 tile_end) of the matrix. As in LinearOut, in this
/// order: matrix product, + bias, then y = scale * v, or y = fma(scale, v, y) when accumulating.
struct LinearArgs {
  const Matrix* weight = nullptr;
  const LinearInput* input = nullptr;  // prepared for weight->act
  const float* bias = nullptr;         // (rows) or null
  float* y = nullptr;
  int64_t ld_y = 0;
  bool accumulate = false;
  float scale = 1;
  int64_t tile_begin = 0;
  int64_t tile_end = 0;
  /// Another product of the same input over the same tile range of a matrix of the same format,
  /// shape, scale kind and group, whose tiles are interleaved with those of `weight`; null: none.
  /// Processing both together reads memory sequentially; separately, each would skip the other's
  /// tiles.
  const LinearArgs* paired = nullptr;
};

/// One query of one head: it sees positions [first, last), at least one.
struct AttentionQuery {
  const float* q = nullptr;  // (head_dim)
  float* out = nullptr;      // (the values' width)
  int32_t first = 0;
  int32_t last = 0;
  const float* sink = nullptr;  // a logit without a value, or null
};

inline constexpr int kMaxQueries = 8;
/// Positions per vector of keys.
inline constexpr int kKeyLanes = 16;

/// Up to kMaxQueries queries on the keys and values of one KV head. Keys are stored as (position /
/// 16, head_dim, 16), values as (position, width), in whole blocks of 64 positions; unseen
/// positions may be undefined. kLatent: keys are stored as (position, head_dim), with values inside
/// them.
struct AttentionTile {
  AttentionQuery queries[kMaxQueries];
  int32_t n_queries = 0;
  int32_t head_dim = 0;
  int32_t latent_dim = 0;  // kLatent: width of the values, which are inside the keys
  KvType type = KvType::kF16;
  const void* k = nullptr;
  const void* v = nullptr;
  const float* k_scale = nullptr;  // kInt8: (position), otherwise null
  const float* v_scale = nullptr;
  float multiplier = 1;  // of the scores
  float cap = 0;         // > 0: score = cap * tanh(score / cap)
};

/// 256 inputs of a tile of a codebook format, unpacked.
struct CodebookCodes {
  static constexpr int kLanes = kCodebookInputs / kLaneInputs;
  static constexpr int kGroupLanes = kTileGroup / kLaneInputs;
  static constexpr int kPartInputs = kTileGroup / 2;  // the fewest that share a scale
  static constexpr int kParts = kCodebookInputs / kPartInputs;

  alignas(64) uint32_t lanes[kLanes][kTileRows];  // blocks as four-bit formats have them
  alignas(64) float scales[kParts][kTileRows];
};

struct CpuKernels {
  const char* name;

  /// Quantises rows [begin, end) of input->x into codes, scales and sums. Rows are independent.
  void (*quantise_rows)(const LinearInput& input, int32_t begin, int32_t end);
  /// Processes one range of tiles, including those of the paired product; ranges are independent. A
  /// row's result depends only on that row.
  void (*linear)(const LinearArgs& args);
  /// Unpacks a segment of a codebook format for linear(), also for that of a table which differs
  /// only in products; null where linear() does not need it.
  void (*unpack_codebook)(FormatId format, const uint8_t* segment, CodebookCodes* out);

  /// y = norm(x) over n values; y may be x.
  void (*norm_row)(const Norm& norm, const float* x, int n, float* y);
  float (*sum_squares)(const float* x, int n);
  /// hadamard() of kernels/hadamard.h.
  void (*hadamard)(float scale, int n, float* x);
  /// out = act(gate) * (up + up_offset) with the config's clamps, or act(up) if gate is null; out
  /// may be gate or up. Returns the number of values of act() above 0.
  uint32_t (*activation)(const ActivationConfig& config, const float* gate, const float* up, int n,
                         float* out);
  /// x = limit * tanh(x / limit), over n values.
  void (*cap_row)(float limit, float* x, int n);
  /// x = x * sigmoid(gate), over n values.
  void (*gate_row)(const float* gate, int n, float* x);
  /// y = y + w x, one fused multiply-add per element.
  void (*add_scaled)(float w, const float* x, int n, float* y);
  /// RoPE in place on the first `dims` (even) of each head. row: (dims / 2, {cos, sin}) of the
  /// position. Pairs are neighbours, or elements j and j + dims / 2.
  void (*rotate)(const float* row, int dims, bool neighbours, float* x, int n_heads, int head_dim);
  /// Rounds keys and values to the cache's type, element i at out[i * stride]. int8: codes in
  /// -127..127; returns their scale.
  void (*round_f16)(const float* x, int n, int stride, uint16_t* out);
  float (*round_int8)(const float* x, int n, int stride, int8_t* out);
  /// Softmax attention with keys in blocks of 64 aligned to the absolute position, ascending. A
  /// query's result does not depend on the others.
  void (*attention)(const AttentionTile& tile);

  /// The mixer's run() (kernels/mixers/info.h).
  int32_t (*mix)(const MixerArgs& args);
  /// The mixer's finish(), after all units; does nothing if it has none.
  void (*finish_mixed)(const MixerArgs& args, int32_t row);
};

}  // namespace moe
