// SPDX-License-Identifier: MIT
// Packs, reads and checks tiles of the codebook formats.
#include "quant/codebook.h"

#include <algorithm>
#include <cstring>

#include "quant/block_scan.h"
#include "quant/weight_group.h"

namespace moe {
namespace {

int64_t segments_in(int64_t cols) { return (cols + kCodebookInputs - 1) / kCodebookInputs; }

// Weights of n inputs (at most eight) from a lane, times a scale.
template <class Layout>
void put_lane(uint32_t lane, float scale, int n, float* out) {
  for (int j = 0; j < n; ++j) {
    out[j] = static_cast<float>(Layout::value(code_in_lane(lane, j))) * scale;
  }
}

}  // namespace

size_t codebook_tile_bytes(const CodebookKind& kind, int64_t cols) {
  return static_cast<size_t>(segments_in(cols) * kind.block_bytes * kTileRows);
}

// Padding rows are zeros, of which the f16 makes weights of 0.
void codebook_pack_blocks(const CodebookKind& kind, const uint8_t* blocks, int64_t ld, int n_rows,
                          int32_t cols, uint8_t* tile) {
  std::memset(tile, 0, codebook_tile_bytes(kind, cols));
  for (int64_t segment = 0; segment < segments_in(cols); ++segment) {
    uint8_t* to = tile + segment * kind.block_bytes * kTileRows;
    for (int row = 0; row < n_rows; ++row) {
      const uint8_t* block = blocks + row * ld + segment * kind.block_bytes;
      for (const BlockField& field : kind.fields) {
        for (int i = 0; i < field.n; ++i) {
          const int at = field.at + i * field.bytes;
          std::memcpy(to + kTileRows * at + row * field.bytes, block + at,
                      static_cast<size_t>(field.bytes));
        }
      }
    }
  }
}

template <Codebook kKind>
void CodebookFormat<kKind>::read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t begin = 0; begin < cols; begin += kLaneInputs) {
    const int in_segment = begin % kCodebookInputs;
    const uint32_t lane =
        Layout::Segment::lane(Layout::segment_of(tile, begin), row, in_segment / kTileGroup,
                              in_segment % kTileGroup / kLaneInputs);
    put_lane<Layout>(lane, 1.0f, std::min(cols - begin, kLaneInputs), out + begin);
  }
}

template <Codebook kKind>
void CodebookFormat<kKind>::read_block(const uint8_t* block, float* to) {
  using Block = CodebookSegment<kKind, 1>;
  const float half = f16_to_f32(Block::half(block, 0));
  for (int i = 0; i < kCodebookInputs / kLaneInputs; ++i) {
    const auto factor = static_cast<float>(Block::factor(block, 0, i / 2));
    put_lane<Layout>(Block::lane(block, 0, i / 4, i % 4), half * (factor * Layout::kUnit),
                     kLaneInputs, to + i * kLaneInputs);
  }
}

// Every index, sign and factor is valid.
template <Codebook kKind>
int64_t CodebookFormat<kKind>::find_invalid(const uint8_t* tile, size_t bytes) {
  for (size_t at = 0; at < bytes; at += Layout::kSegmentBytes) {
    uint16_t halves[kTileRows];
    for (int row = 0; row < kTileRows; ++row) halves[row] = Layout::Segment::half(tile + at, row);
    const auto* found = reinterpret_cast<const uint8_t*>(halves);
    if (find_block(found, sizeof halves, infinite_halves) >= 0) {
      return static_cast<int64_t>(at / kBlockBytes);
    }
  }
  return -1;
}

template <Codebook kKind>
void CodebookFormat<kKind>::read_tile(const uint8_t* tile, int32_t begin, int32_t n, float* out) {
  uint32_t lanes[kTileRows];
  for (int32_t col = begin; col < begin + n; ++col) {
    const int j = col % kLaneInputs;
    const int lane = col % kCodebookInputs / kLaneInputs;
    for (int row = 0; row < kTileRows; ++row) {
      if (col == begin || j == 0) {
        const uint8_t* const segment = Layout::segment_of(tile, col);
        lanes[row] = Layout::Segment::lane(segment, row, lane / 4, lane % 4);
      }
      *out++ = Layout::value(code_in_lane(lanes[row], j));
    }
  }
}

template struct CodebookFormat<Codebook::kIq2Xxs>;
template struct CodebookFormat<Codebook::kIq2Xs>;
template struct CodebookFormat<Codebook::kIq2S>;
template struct CodebookFormat<Codebook::kIq3Xxs>;
template struct CodebookFormat<Codebook::kIq3S>;
template struct CodebookFormat<Codebook::kIq1S>;
template struct CodebookFormat<Codebook::kIq1M>;

const uint32_t* codebook_lanes(Codebook kind) {
  switch (kind) {
    case Codebook::kIq2Xxs:
      return kIq2XxsTable.lanes;
    case Codebook::kIq2Xs:
      return kIq2XsTable.lanes;
    case Codebook::kIq2S:
      return kIq2STable.lanes;
    case Codebook::kIq3Xxs:
      return kIq3XxsTable.lanes;
    case Codebook::kIq3S:
      return kIq3STable.lanes;
    case Codebook::kIq1S:
    case Codebook::kIq1M:
      return kIq1Table.lanes;
  }
  return nullptr;
}

}  // namespace moe
