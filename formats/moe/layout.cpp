// SPDX-License-Identifier: MIT
// Computes the offsets of matrices' tiles and scales in a segment, and the names of segments and
// tensors in messages.
#include "formats/moe/layout.h"

#include <cinttypes>

#include "quant/formats.h"
#include "src/base/checked.h"
#include "src/base/format.h"

namespace moe {
namespace {

constexpr size_t kMaxMatrices = 1024;

uint64_t n_tiles(const BlobMatrix& m) {
  return (static_cast<uint64_t>(m.rows) + kTileRows - 1) / kTileRows;
}

uint64_t tile_bytes(const BlobMatrix& m) {
  return round_up<uint64_t>(format_info(m.format).tile_bytes(m.cols), kMatrixAlign);
}

// A gate and the following up are interleaved: they go through the CPU cache together.
bool interleaves(const BlobMatrix& gate, const BlobMatrix& up) {
  return gate.role == Role::kGate && up.role == Role::kUp && gate.sublayer == up.sublayer &&
         gate.format == up.format && gate.rows == up.rows && gate.cols == up.cols;
}

Status check_blob_matrix(const BlobMatrix& m) {
  if (m.rows < 1 || m.cols < 1 || m.rows > kMaxRows || m.cols > kMaxCols) {
    return Status::error(MOE_ERR_SHAPE, "expected (1, 1) to (%d, %d), found (%d, %d)", kMaxRows,
                         kMaxCols, m.rows, m.cols);
  }
  if (m.sublayer < -1) return Status::error(MOE_ERR_RANGE, "block: found %d", m.sublayer);
  if (m.scale != ScaleKind::kGroup && m.group != 0) {
    return Status::error(MOE_ERR_RANGE, "scale group: expected 0 without group scales, found %d",
                         m.group);
  }
  Matrix shape = view(m, nullptr);
  shape.tile_stride = INT64_MAX;  // unknown yet
  return check_matrix(shape);
}

// Reserves n bytes at the next aligned offset.
Status take(uint64_t n, uint64_t* end, uint64_t* offset) {
  *offset = round_up(*end, kMatrixAlign);
  if (n > kMaxSegmentBytes || *offset > kMaxSegmentBytes - n) {
    return Status::error(MOE_ERR_SHAPE, "blob: more than %" PRIu64 " bytes", kMaxSegmentBytes);
  }
  *end = *offset + n;
  return {};
}

}  // namespace

bool operator==(const BlobLayout& a, const BlobLayout& b) {
  if (a.bytes != b.bytes || a.matrices.size() != b.matrices.size()) return false;
  for (size_t i = 0; i < a.matrices.size(); ++i) {
    if (!(a.matrices[i] == b.matrices[i])) return false;
  }
  return true;
}

Status place(BlobLayout* layout) {
  Array<BlobMatrix>& all = layout->matrices;
  if (all.empty() || all.size() > kMaxMatrices) {
    return Status::error(MOE_ERR_SHAPE, "blob: expected 1..%zu matrices, found %zu", kMaxMatrices,
                         all.size());
  }
  for (const BlobMatrix& m : all) {
    const Status status = check_blob_matrix(m);
    if (!status.ok()) return status.with_context("%s", name_in(kRoles, m.role));
  }
  uint64_t end = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    BlobMatrix& m = all[i];
    const bool pair = i + 1 < all.size() && interleaves(m, all[i + 1]);
    m.tile_stride = tile_bytes(m) * (pair ? 2 : 1);
    // At most 2^24 rows of 2^20 four-byte weights: no overflow in 64 bits.
    MOE_TRY(take(n_tiles(m) * m.tile_stride, &end, &m.offset));
    if (!pair) continue;
    BlobMatrix& up = all[++i];
    up.tile_stride = m.tile_stride;
    up.offset = m.offset + tile_bytes(m);
  }
  for (BlobMatrix& m : all) {
    m.scales_offset = 0;
    if (scale_floats(m) != 0)
      MOE_TRY(take(scale_floats(m) * sizeof(float), &end, &m.scales_offset));
  }
  layout->bytes = round_up(end, kMatrixAlign);
  return {};
}

size_t scale_floats(const BlobMatrix& m) {
  return scale_count(m.format, m.scale, m.group, m.rows, m.cols);
}

uint64_t stored_bytes(const BlobMatrix& m) {
  return n_tiles(m) * tile_bytes(m) + scale_floats(m) * sizeof(float);
}

Matrix view(const BlobMatrix& m, const uint8_t* base) {
  Matrix matrix;
  matrix.format = m.format;
  matrix.scale_kind = m.scale;
  matrix.act = m.act;
  matrix.group = m.group;
  matrix.rows = m.rows;
  matrix.cols = m.cols;
  matrix.tile_stride = static_cast<int64_t>(m.tile_stride);
  if (base == nullptr) return matrix;
  matrix.tiles = base + m.offset;
  if (scale_floats(m) != 0) {
    matrix.scales = reinterpret_cast<const float*>(base + m.scales_offset);
  }
  return matrix;
}

const char* segment_name(Part part, int32_t layer, int32_t expert, char (&text)[kTensorNameBytes]) {
  const char* name = name_in(kParts, part);
  if (layer < 0) {
    format(text, sizeof text, "%s", name);
  } else if (expert < 0) {
    format(text, sizeof text, "layers.%d.%s", layer, name);
  } else {
    format(text, sizeof text, "layers.%d.%s.%d", layer, name, expert);
  }
  return text;
}

const char* tensor_name(Part part, int32_t layer, int32_t expert, const BlobMatrix& m,
                        char (&text)[kTensorNameBytes]) {
  char segment[kTensorNameBytes];
  segment_name(part, layer, expert, segment);
  char block[16] = "";
  if (m.sublayer >= 0) format(block, sizeof block, ".%d", m.sublayer);
  format(text, sizeof text, "%.*s%s.%s", 60, segment, block, name_in(kRoles, m.role));
  return text;
}

}  // namespace moe
