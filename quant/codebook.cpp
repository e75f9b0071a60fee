// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of the codebook formats, and unpacks them for
// matrix products.
#include "quant/codebook.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "quant/block_scan.h"
#include "quant/codebook_group.h"
#include "quant/random.h"
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

template <Codebook kKind>
void put_block_half(uint8_t* segment, int row, uint16_t half) {
  if constexpr (kKind != Codebook::kIq1M) {
    std::memcpy(segment + 2 * row, &half, sizeof half);
    return;
  }
  constexpr int kParts = codebook_kind(Codebook::kIq1M).fields[2].at;
  for (int i = 0; i < 4; ++i) {
    uint8_t& upper = segment[kTileRows * (kParts + 2 * i) + 2 * row + 1];
    upper = static_cast<uint8_t>((upper & 15) | (half >> 4 * i & 15) << 4);
  }
}

template <size_t N>
constexpr double mean_square(const CodebookTable<N>& table, int codes_per_lane, uint64_t values) {
  double sum = 0;
  for (const uint32_t lane : table.lanes) {
    for (int j = 0; j < codes_per_lane; ++j) {
      const uint32_t code = lane >> (j % 4 * 8 + j / 4 * 4) & 7;
      const double value = static_cast<int8_t>(values >> (code * 8) & 255);
      sum += value * value;
    }
  }
  return sum / static_cast<double>(N) / codes_per_lane;
}

// Mean square of the values of random indices.
template <class Layout>
constexpr double mean_square_of_values() {
  constexpr uint64_t kValues = Layout::kLowValues;
  switch (Layout::kCodebook) {
    case Codebook::kIq2Xxs:
      return mean_square(kIq2XxsTable, 8, kValues);
    case Codebook::kIq2Xs:
      return mean_square(kIq2XsTable, 8, kValues);
    case Codebook::kIq2S:
      return mean_square(kIq2STable, 8, kValues);
    case Codebook::kIq3Xxs:
      return mean_square(kIq3XxsTable, 4, kValues);
    case Codebook::kIq3S:
      return mean_square(kIq3STable, 4, kValues);
    case Codebook::kIq1S:
    case Codebook::kIq1M:
      return mean_square(kIq1Table, 8, kValues);
  }
  return 0;
}

// Mean square of 2 s + 1 for s of four bits, or of three.
template <class Layout>
constexpr double mean_square_of_factors() {
  const bool three = Layout::kCodebook == Codebook::kIq1S || Layout::kCodebook == Codebook::kIq1M;
  return three ? 85 : 341;
}

// Random bytes, with f16 near `even`.
void fill_randomly(Random& random, size_t bytes, size_t segment, float even,
                   void (*put)(uint8_t*, int, uint16_t), uint8_t* tile) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(tile + i, &v, 8);
  }
  for (size_t at = 0; at < bytes; at += segment) {
    for (int row = 0; row < kTileRows; ++row) {
      put(tile + at, row, f32_to_f16(even * (0.9f + 0.2f * random.uniform())));
    }
  }
}

template <Codebook kKind, int kLane>
MOE_INLINE void unpack_lanes(const uint8_t* s, int g, CodebookGroup* out) {
  for (int row = 0; row < kTileRows; ++row) {
    const uint32_t codes = CodebookSegment<kKind>::lane(s, row, g, kLane);
    std::memcpy(out->codes + kBlockBytes * kLane + 4 * row, &codes, sizeof codes);
  }
}

template <Codebook kKind>
void unpack(const uint8_t* tile, int32_t begin, CodebookGroup* out) {
  using Segment = CodebookSegment<kKind>;
  const uint8_t* s = CodebookLayout<kKind>::segment_of(tile, begin);
  const int g = begin % kCodebookInputs / kTileGroup;
  unpack_lanes<kKind, 0>(s, g, out);
  unpack_lanes<kKind, 1>(s, g, out);
  unpack_lanes<kKind, 2>(s, g, out);
  unpack_lanes<kKind, 3>(s, g, out);
  for (int row = 0; row < kTileRows; ++row) {
    out->factors[0][row] = static_cast<int8_t>(Segment::factor(s, row, 2 * g));
  }
  if constexpr (CodebookLayout<kKind>::kGroupInputs == kTileGroup) {
    std::memcpy(out->factors[1], out->factors[0], sizeof out->factors[0]);
  } else {
    for (int row = 0; row < kTileRows; ++row) {
      out->factors[1][row] = static_cast<int8_t>(Segment::factor(s, row, 2 * g + 1));
    }
  }
  for (int row = 0; row < kTileRows; ++row) out->halves[row] = Segment::half(s, row);
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

// Weights with variance amplitude^2 / 3.
template <Codebook kKind>
void CodebookFormat<kKind>::random_tile(Random& random, size_t bytes, float amplitude,
                                        uint8_t* tile) {
  constexpr double kSquares = mean_square_of_values<Layout>() * mean_square_of_factors<Layout>();
  const float even = amplitude / (std::sqrt(static_cast<float>(3 * kSquares)) * Layout::kUnit);
  fill_randomly(random, bytes, Layout::kSegmentBytes, even, put_block_half<kKind>, tile);
}

template struct CodebookFormat<Codebook::kIq2Xxs>;
template struct CodebookFormat<Codebook::kIq2Xs>;
template struct CodebookFormat<Codebook::kIq2S>;
template struct CodebookFormat<Codebook::kIq3Xxs>;
template struct CodebookFormat<Codebook::kIq3S>;
template struct CodebookFormat<Codebook::kIq1S>;
template struct CodebookFormat<Codebook::kIq1M>;

void unpack_codebook(FormatId format, const uint8_t* tile, int32_t begin, CodebookGroup* out) {
  switch (format) {
    case FormatId::kIq2Xxs:
      return unpack<Codebook::kIq2Xxs>(tile, begin, out);
    case FormatId::kIq2Xs:
      return unpack<Codebook::kIq2Xs>(tile, begin, out);
    case FormatId::kIq2S:
      return unpack<Codebook::kIq2S>(tile, begin, out);
    case FormatId::kIq3Xxs:
      return unpack<Codebook::kIq3Xxs>(tile, begin, out);
    case FormatId::kIq3S:
      return unpack<Codebook::kIq3S>(tile, begin, out);
    case FormatId::kIq1S:
      return unpack<Codebook::kIq1S>(tile, begin, out);
    default:
      return unpack<Codebook::kIq1M>(tile, begin, out);
  }
}

CodebookValues codebook_values(FormatId format) {
  const auto of = [](const CodebookKind& k) { return CodebookValues{k.low, k.high, k.unit}; };
  switch (format) {
    case FormatId::kIq2Xxs:
    case FormatId::kIq2Xs:
    case FormatId::kIq2S:
      return of(Iq2SFormat::kInfo);
    case FormatId::kIq3Xxs:
      return of(Iq3XxsFormat::kInfo);
    case FormatId::kIq3S:
      return of(Iq3SFormat::kInfo);
    default:
      return of(Iq1MFormat::kInfo);
  }
}

void read_codebook_tile(FormatId format, const uint8_t* tile, int32_t begin, int32_t n,
                        float* out) {
  const CodebookValues values = codebook_values(format);
  float of_code[16];
  for (int code = 0; code < 16; ++code) {
    const uint64_t word = code < 8 ? values.low : values.high;
    of_code[code] = static_cast<int8_t>(word >> (code % 8 * 8) & 255);
  }
  CodebookGroup group;
  for (int32_t col = begin; col < begin + n; ++col) {
    const int32_t i = col % kTileGroup;
    if (col == begin || i == 0) unpack_codebook(format, tile, col - i, &group);
    const uint8_t* codes = group.codes + i / kLaneInputs * kBlockBytes + i % 4;
    const int shift = i % kLaneInputs / 4 * 4;
    for (int row = 0; row < kTileRows; ++row) *out++ = of_code[codes[4 * row] >> shift & 15];
  }
}

}  // namespace moe
