// SPDX-License-Identifier: MIT
// Unpacks codebook formats for matrix products. Its loops over rows are vectorised; only the
// look-ups are not.
#include "quant/codebook_group.h"

#include <cstring>

#include "quant/codebook.h"

namespace moe {
namespace {

template <Codebook kKind, int kLane>
MOE_INLINE void unpack_lanes(const uint8_t* __restrict s, int g, CodebookGroup* __restrict out) {
  for (int row = 0; row < kTileRows; ++row) {
    const uint32_t codes = CodebookSegment<kKind>::lane(s, row, g, kLane);
    std::memcpy(out->codes + kBlockBytes * kLane + 4 * row, &codes, sizeof codes);
  }
}

}  // namespace

template <Codebook kKind>
void unpack_codebook(const uint8_t* __restrict tile, int32_t begin, CodebookGroup* __restrict out) {
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

template void unpack_codebook<Codebook::kIq2Xxs>(const uint8_t*, int32_t, CodebookGroup*);
template void unpack_codebook<Codebook::kIq2Xs>(const uint8_t*, int32_t, CodebookGroup*);
template void unpack_codebook<Codebook::kIq2S>(const uint8_t*, int32_t, CodebookGroup*);
template void unpack_codebook<Codebook::kIq3Xxs>(const uint8_t*, int32_t, CodebookGroup*);
template void unpack_codebook<Codebook::kIq3S>(const uint8_t*, int32_t, CodebookGroup*);
template void unpack_codebook<Codebook::kIq1S>(const uint8_t*, int32_t, CodebookGroup*);
template void unpack_codebook<Codebook::kIq1M>(const uint8_t*, int32_t, CodebookGroup*);

void unpack_codebook(FormatId format, const uint8_t* tile, int32_t begin, CodebookGroup* out) {
  with_codebook(format, [&]<Codebook kKind>() { unpack_codebook<kKind>(tile, begin, out); });
}

CodebookValues codebook_values(FormatId format) {
  CodebookValues values = {};
  with_codebook(format, [&]<Codebook kKind>() {
    using Layout = CodebookLayout<kKind>;
    values = {Layout::kLowValues, Layout::kHighValues, Layout::kUnit};
  });
  return values;
}

}  // namespace moe
