#pragma once
// Random weights of any format, as fast as memory takes them.

#include <cstdint>
#include <vector>

#include "formats/moe/layout.h"

namespace moe {

/// Sebastiano Vigna's SplitMix64: 64 bits a call, the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, 1), 24 bits.
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

 private:
  uint64_t state_;
};

/// Fills whole tiles of one matrix. Codes of ternary2 are 0 half the time, those of ternary3 a
/// third of it; int8 codes are uniform in -127 to 127, floats in -1 to 1 times `amplitude`. Padding
/// is what a packer would write.
class RandomTiles {
 public:
  RandomTiles(const BlobMatrix& matrix, float amplitude);

  size_t tile_bytes() const { return tile_bytes_; }
  void fill(int32_t t, Random& random, uint8_t* out);

 private:
  void pack_slowly(int n_rows, Random& random, uint8_t* out);

  const BlobMatrix matrix_;
  float amplitude_;
  size_t tile_bytes_;
  bool whole_blocks_;  // no padding along the inputs but ternary3's own
  std::vector<int8_t> codes_;
  std::vector<float> values_;
};

}  // namespace moe
