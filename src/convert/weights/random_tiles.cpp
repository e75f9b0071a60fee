// SPDX-License-Identifier: MIT
// Calls a format's own random tiles, or packs random codes, and fills in scales.
#include "src/convert/weights/random_tiles.h"

namespace moe {

RandomTiles::RandomTiles(const BlobMatrix& matrix, float amplitude)
    : matrix_(matrix),
      amplitude_(amplitude),
      format_(format_info(matrix.format)),
      tile_bytes_(format_.tile_bytes(matrix.cols)) {}

void RandomTiles::fill(int32_t t, Random& random, uint8_t* out) {
  const int n_rows = rows_of(t);
  const bool whole = n_rows == kTileRows && matrix_.cols % format_.random_cols == 0;
  if (!whole || format_.random_tile == nullptr) return pack_slowly(n_rows, random, out);
  format_.random_tile(random, tile_bytes_, amplitude_, out);
}

void RandomTiles::fill_zeros(int32_t t, uint8_t* out) {
  const int n_rows = rows_of(t);
  const int32_t cols = matrix_.cols;
  const size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(cols);
  values_.assign(n, 0);
  codes_.assign(n, 0);
  if (format_.quantise_tile != nullptr) {  // no code of nl4 is 0
    (void)format_.quantise_tile(values_.data(), cols, n_rows, cols, nullptr, out);
  } else if (format_.integer) {
    format_.pack_codes(codes_.data(), cols, n_rows, cols, out);
  } else {
    format_.pack_values(values_.data(), cols, n_rows, cols, out);
  }
}

void RandomTiles::pack_slowly(int n_rows, Random& random, uint8_t* out) {
  const size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(matrix_.cols);
  if (!format_.integer) {
    values_.resize(n);
    for (float& v : values_) v = amplitude_ * (2 * random.uniform() - 1);
    format_.pack_values(values_.data(), matrix_.cols, n_rows, matrix_.cols, out);
    return;
  }
  codes_.resize(n);
  for (int8_t& code : codes_) {
    const auto byte = static_cast<uint8_t>(random.next() >> 56);
    code = format_.random_code != nullptr
               ? format_.random_code(byte)
               : static_cast<int8_t>(byte % (2 * format_.max_code + 1) - format_.max_code);
  }
  format_.pack_codes(codes_.data(), matrix_.cols, n_rows, matrix_.cols, out);
  if (format_.group != 0) put_scales(n_rows, random, out);
}

// Weights in the same range as plain values: at most `amplitude_`.
void RandomTiles::put_scales(int n_rows, Random& random, uint8_t* out) {
  const auto n_groups =
      static_cast<size_t>((matrix_.cols + format_.group - 1) / format_.group * n_rows);
  values_.resize(2 * n_groups);
  const auto most = static_cast<float>(format_.max_code);
  for (size_t i = 0; i < n_groups; ++i) {
    const float reach = amplitude_ * (0.9f + 0.1f * random.uniform());
    values_[i] = (format_.minimums ? 2 * reach : reach) / most;
    values_[n_groups + i] = -reach;
  }
  format_.pack_scales(values_.data(), &values_[n_groups], n_rows, matrix_.cols, out);
}

}  // namespace moe
