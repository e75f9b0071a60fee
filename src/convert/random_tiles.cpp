#include "src/convert/random_tiles.h"

#include <algorithm>
#include <cstring>

#include "quant/half.h"
#include "quant/list.h"

namespace moe {
namespace {

void fill_ternary2(Random& random, size_t n, uint8_t* out) {
  for (size_t i = 0; i < n; i += 8) {
    uint64_t v = random.next();
    v &= ~((v & (v >> 1) & 0x5555555555555555u) << 1);  // a field of 3 becomes 1, weight 0
    std::memcpy(out + i, &v, 8);
  }
}

void fill_ternary3(Random& random, size_t n, uint8_t* out) {
  for (size_t i = 0; i < n; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(out + i, &v, 8);
  }
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>((out[i] * 243u) >> 8);
  // The last block of a segment ends in four pad trits: the top trit of each byte is code 1.
  for (size_t block = kTernary3Blocks - 1; block < n / kBlockBytes; block += kTernary3Blocks) {
    uint8_t* bytes = out + block * kBlockBytes;
    for (int i = 0; i < kBlockBytes; ++i) bytes[i] = static_cast<uint8_t>(bytes[i] % 81 + 81);
  }
}

void fill_int8(Random& random, size_t n, uint8_t* out) {
  for (size_t i = 0; i < n; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(out + i, &v, 8);
  }
  for (size_t i = 0; i < n; ++i) out[i] = out[i] == 0x80 ? uint8_t{0} : out[i];
}

// Four 16-bit integers of each draw as floats in [-amplitude, amplitude).
template <class T, class F>
void fill_floats(Random& random, size_t n_bytes, float amplitude, uint8_t* out, F&& convert) {
  const float step = amplitude / 32768.0f;
  const size_t n = n_bytes / sizeof(T);
  for (size_t i = 0; i < n; i += 4) {
    const uint64_t v = random.next();
    for (size_t j = 0; j < 4; ++j) {
      const auto r = static_cast<int16_t>(v >> (16 * j));
      const T value = convert(static_cast<float>(r) * step);
      std::memcpy(out + (i + j) * sizeof(T), &value, sizeof(T));
    }
  }
}

}  // namespace

RandomTiles::RandomTiles(const BlobMatrix& matrix, float amplitude)
    : matrix_(matrix),
      amplitude_(amplitude),
      tile_bytes_(format_info(matrix.format).tile_bytes(matrix.cols)) {
  switch (matrix.format) {
    case FormatId::kTernary2:
      whole_blocks_ = matrix.cols % 16 == 0;
      break;
    case FormatId::kTernary3:
      whole_blocks_ = matrix.cols % kTernary3Segment == 0;
      break;
    case FormatId::kInt8:
      whole_blocks_ = matrix.cols % 4 == 0;
      break;
    default:
      whole_blocks_ = true;
  }
}

void RandomTiles::fill(int32_t t, Random& random, uint8_t* out) {
  const int n_rows = std::min(kTileRows, matrix_.rows - t * kTileRows);
  if (!whole_blocks_ || n_rows < kTileRows) return pack_slowly(n_rows, random, out);
  switch (matrix_.format) {
    case FormatId::kTernary2:
      return fill_ternary2(random, tile_bytes_, out);
    case FormatId::kTernary3:
      return fill_ternary3(random, tile_bytes_, out);
    case FormatId::kInt8:
      return fill_int8(random, tile_bytes_, out);
    case FormatId::kBf16:
      return fill_floats<uint16_t>(random, tile_bytes_, amplitude_, out, f32_to_bf16);
    case FormatId::kF16:
      return fill_floats<uint16_t>(random, tile_bytes_, amplitude_, out, f32_to_f16);
    default:
      return fill_floats<float>(random, tile_bytes_, amplitude_, out, [](float v) { return v; });
  }
}

void RandomTiles::pack_slowly(int n_rows, Random& random, uint8_t* out) {
  const WeightFormat& format = format_info(matrix_.format);
  const size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(matrix_.cols);
  if (!format.integer) {
    values_.resize(n);
    for (float& v : values_) v = amplitude_ * (2 * random.uniform() - 1);
    format.pack_values(values_.data(), matrix_.cols, n_rows, matrix_.cols, out);
    return;
  }
  codes_.resize(n);
  for (int8_t& code : codes_) {
    const auto r = static_cast<int>(random.next() >> 56);
    switch (matrix_.format) {
      case FormatId::kInt8:
        code = static_cast<int8_t>(std::max(r - 128, -127));
        break;
      case FormatId::kTernary3:
        code = static_cast<int8_t>(r % 3 - 1);
        break;
      default:
        code = static_cast<int8_t>(r < 64 ? -1 : (r >= 192 ? 1 : 0));
    }
  }
  format.pack_codes(codes_.data(), matrix_.cols, n_rows, matrix_.cols, out);
}

}  // namespace moe
