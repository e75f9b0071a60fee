// SPDX-License-Identifier: MIT
#pragma once
// Placement of matrices in a segment. The writer computes it from a list of matrices; the reader
// recomputes and compares it.

#include "formats/moe/names.h"
#include "quant/format.h"
#include "src/base/array.h"
#include "src/base/status.h"

namespace moe {

/// Segment alignment in the file: a page, so that segments can be mapped.
inline constexpr uint64_t kSegmentAlign = 4096;
/// Alignment of matrices and scales in a segment.
inline constexpr uint64_t kMatrixAlign = 64;
/// Largest matrix.
inline constexpr int32_t kMaxRows = 1 << 24;
inline constexpr int32_t kMaxCols = 1 << 20;
/// Largest segment in memory.
inline constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 40;

/// One matrix or vector of a blob. The caller of place() fills the first group.
struct BlobMatrix {
  Role role = Role::kWeight;
  int32_t sublayer = -1;  // X-MoE: sub-layer of the expert; -1: none
  FormatId format = FormatId::kF32;
  ScaleKind scale = ScaleKind::kNone;
  ActPrecision act = ActPrecision::kF32;
  int32_t group = 0;  // kGroup: inputs per scale
  int32_t rows = 0;
  int32_t cols = 0;      // vectors: 1
  bool rotated = false;  // reads rotated inputs; of an embedding: its rows are rotated

  uint64_t offset = 0;         // of tile 0, in the blob
  uint64_t tile_stride = 0;    // bytes from tile to tile
  uint64_t scales_offset = 0;  // 0: none

  bool operator==(const BlobMatrix&) const = default;
};

struct BlobLayout {
  explicit BlobLayout(const Allocator& allocator = system_allocator()) : matrices(allocator) {}

  Array<BlobMatrix> matrices;
  uint64_t bytes = 0;
};

bool operator==(const BlobLayout& a, const BlobLayout& b);

/// Computes every offset and the size: the tiles of all matrices in list order, where a gate
/// followed by an up of the same sub-layer, format and shape is interleaved with it tile by tile;
/// then the scales in list order. MOE_ERR_SHAPE for invalid sizes or scales.
Status place(BlobLayout* layout);

/// The matrix in a blob at `base` (64-byte aligned).
Matrix view(const BlobMatrix& m, const uint8_t* base);

/// Bytes of tiles and scales of one matrix, including padding.
uint64_t stored_bytes(const BlobMatrix& m);

/// Number of floats at scales_offset.
size_t scale_floats(const BlobMatrix& m);

/// Writes the tensor's name, "layers.3.experts.7.2.up" (layer and expert -1 are omitted), for
/// messages and lists. Always terminated; returns `text`.
inline constexpr size_t kTensorNameBytes = 96;
const char* tensor_name(Part part, int32_t layer, int32_t expert, const BlobMatrix& m,
                        char (&text)[kTensorNameBytes]);
/// The same for a whole segment: "layers.3.experts.7".
const char* segment_name(Part part, int32_t layer, int32_t expert, char (&text)[kTensorNameBytes]);

}  // namespace moe
