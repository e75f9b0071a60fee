// SPDX-License-Identifier: MIT
#pragma once
// A weight format: a name, a block geometry and a definition. See quant/README.md.

// Plain C headers only: the files of kernels/cpu/isa include this.
#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"

namespace moe {

/// Every stored format. Files contain names, not numbers (see WeightFormat::name).
enum class FormatId : uint8_t {
#define MOE_WEIGHT_FORMAT(Name, header) k##Name,
#include "quant/list.h"
#undef MOE_WEIGHT_FORMAT
};

/// Rows of one tile; one 32-bit lane of a block belongs to one row (integer formats).
inline constexpr int kTileRows = 16;
/// Bytes of one block of an integer format. Float formats have 16 elements per block.
inline constexpr int kBlockBytes = 64;

enum class ScaleKind : uint8_t { kNone, kTensor, kRow, kGroup };
enum class ActPrecision : uint8_t { kF32, kA8, kA8Block, kA8Group };

/// Inputs that share one activation scale under `a8_block`, and under `a8_group`.
inline constexpr int kActBlock = 256;
inline constexpr int kActGroup = 32;

/// Inputs that share an activation scale, of rows with `cols`; a8: all of them.
MOE_INLINE int32_t inputs_per_scale(ActPrecision act, int32_t cols) {
  return act == ActPrecision::kA8Group   ? kActGroup
         : act == ActPrecision::kA8Block ? kActBlock
                                         : cols;
}

/// A rotation of a matrix's inputs: x becomes H (signs * x) / sqrt(block) in each block of
/// neighbours, H the Sylvester-Hadamard matrix (kernels/hadamard.h).
struct InputRotation {
  int32_t block = 0;             // a power of two that divides the inputs
  const float* signs = nullptr;  // (cols) 1 or -1; null: all 1
};

/// One matrix, identical in memory, on disk and on a device: tiles of 16 rows padded to whole
/// blocks, `tile_stride` bytes apart. A vector is a matrix with one column.
struct Matrix {
  FormatId format = FormatId::kF32;
  ScaleKind scale_kind = ScaleKind::kNone;
  ActPrecision act = ActPrecision::kF32;
  int32_t group = 0;        // kGroup: inputs per scale, 64, 128 or 256, or WeightFormat::group
  int32_t rows = 0;         // outputs
  int32_t cols = 0;         // inputs
  int64_t tile_stride = 0;  // bytes from tile t to tile t + 1
  const uint8_t* tiles = nullptr;
  const float* scales = nullptr;  // scale_count() in quant/formats.h gives their number
  // Null: the inputs are not rotated. Rows of an embedding with one are rotated back when they are
  // looked up. CPU only.
  const InputRotation* rotation = nullptr;

  bool empty() const { return tiles == nullptr; }
};

/// element() of inputs [begin, begin + n) of a whole tile, any format: out (n, 16).
void read_tile(const Matrix& m, int64_t tile, int32_t begin, int32_t n, float* out);

/// Scales and minimums (0 if absent) stored in a tile for a group of inputs: out (16).
bool has_minimums(FormatId format);
void read_tile_scales(const Matrix& m, int64_t tile, int32_t group, float* scales, float* minimums);

}  // namespace moe
