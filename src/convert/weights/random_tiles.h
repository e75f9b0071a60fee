// SPDX-License-Identifier: MIT
#pragma once
// Random weights of any format, at memory speed.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "formats/moe/layout.h"
#include "quant/formats.h"
#include "quant/random.h"

namespace moe {

/// Fills whole tiles of one matrix. Codes follow the format's distribution; floats are in -1 to 1
/// times `amplitude`. Padding is as a packer would write it.
class RandomTiles {
 public:
  RandomTiles(const BlobMatrix& matrix, float amplitude);

  size_t tile_bytes() const { return tile_bytes_; }
  void fill(int32_t t, Random& random, uint8_t* out);
  void fill_zeros(int32_t t, uint8_t* out);

 private:
  int rows_of(int32_t t) const { return std::min(kTileRows, matrix_.rows - t * kTileRows); }
  void put_scales(int n_rows, Random& random, uint8_t* out);
  void pack_slowly(int n_rows, Random& random, uint8_t* out);

  const BlobMatrix matrix_;
  float amplitude_;
  const WeightFormat& format_;
  size_t tile_bytes_;
  std::vector<int8_t> codes_;
  std::vector<float> values_;
};

}  // namespace moe
