// SPDX-License-Identifier: MIT
// tcq2 and tcq3: their layouts, the best of all paths, values stored without loss, and the
// quantisers' errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "quant/half.h"
#include "tests/support/stored_weights.h"

namespace moe {
namespace {

constexpr int kScales = 192;  // bytes of a segment of 512 inputs

struct Kind {
  FormatId id;
  int bits;
  std::vector<int> values;
};
const Kind kKinds[] = {
    {FormatId::kTcq2, 2, {-32, -17, -9, -2, 2, 9, 17, 32}},
    {FormatId::kTcq3, 3, {-32, -24, -18, -13, -9, -6, -3, -1, 1, 3, 6, 9, 13, 18, 24, 32}},
};
const WeightFormat& format_of(const Kind& kind) { return format_info(kind.id); }

TEST(Trellis, BytesOfATile) {
  for (const Kind& kind : kKinds) {
    const WeightFormat& f = format_of(kind);
    const auto group = static_cast<size_t>(64 * kind.bits);
    EXPECT_EQ(f.tile_bytes(2048), 4 * (kScales + 16 * group));
    EXPECT_EQ(f.tile_bytes(1), kScales + group);
    EXPECT_EQ(f.tile_bytes(33), kScales + 2 * group);
    EXPECT_EQ(f.tile_bytes(513), 2 * kScales + 17 * group);
  }
}

// The definition of quant/README.md, bit by bit.
TEST(Trellis, LayoutIsFixed) {
  std::mt19937 rng(11);
  for (const Kind& kind : kKinds) {
    const WeightFormat& f = format_of(kind);
    std::vector<uint8_t> tile(f.tile_bytes(1024));
    for (uint8_t& byte : tile) byte = static_cast<uint8_t>(rng());
    const size_t group_bytes = static_cast<size_t>(64 * kind.bits);
    const auto bit = [&](int row, int32_t col, size_t block, int at) {
      const size_t group = static_cast<size_t>(col) / 32;
      const size_t codes = (group / 16 + 1) * kScales + group * group_bytes;
      const auto r = static_cast<size_t>((row + 16) % 16);
      return tile[codes + 64 * block + 4 * r + static_cast<size_t>(col) % 4] >> at & 1;
    };
    for (int32_t col = 0; col < 1024; ++col) {
      const int e = col % 32 / 8, h = col % 8 / 4;
      for (int row = 0; row < 16; ++row) {
        const int above = bit(row - 1, col, 0, e + 4 * h);
        const int differs = bit(row, col, 0, e + 4 * h) ^ bit(row - 2, col, 0, e + 4 * h);
        int u = 0;
        if (kind.bits == 2) {
          u = bit(row, col, 1, e + 4 * h);
        } else {
          const auto block = static_cast<size_t>(1 + e % 2);
          const int at = 2 * (e / 2) + 4 * h;
          u = bit(row, col, block, at) + 2 * bit(row, col, block, at + 1);
        }
        const auto level = static_cast<size_t>(4 * u + 2 * differs + above);
        ASSERT_EQ(f.element(tile.data(), 1024, row, col), static_cast<float>(kind.values[level]))
            << f.name << " row " << row << " col " << col;
      }
    }
    for (const int32_t group : {0, 7, 8, 15, 16, 31}) {
      for (int row = 0; row < 16; ++row) {
        const size_t r = static_cast<size_t>(row), g = static_cast<size_t>(group % 16);
        const uint8_t* scales =
            tile.data() + static_cast<size_t>(group / 16) * (kScales + 16 * group_bytes);
        const size_t half = g / 8 * 32 + 2 * r;
        const auto bits = static_cast<uint16_t>(scales[half] | scales[half + 1] << 8);
        const int factor = scales[64 + 16 * (g / 2) + r] >> (g % 2 * 4) & 15;
        const float want = f16_to_f32(bits) * static_cast<float>(factor);
        if (!std::isnan(want)) {
          EXPECT_EQ(f.scale(tile.data(), row, group), want);
        }
      }
    }
  }
}

// The least squared error of all 2^16 sequences of branch bits.
double least_error(const Kind& kind, const float* wanted, const float* scales, int n_rows) {
  std::array<std::array<double, 4>, 16> errors = {};
  for (size_t row = 0; row < static_cast<size_t>(n_rows); ++row) {
    errors[row].fill(INFINITY);
    for (size_t level = 0; level < kind.values.size(); ++level) {
      const double d = double{wanted[row]} - kind.values[level] * double{scales[row]};
      errors[row][level % 4] = std::min(errors[row][level % 4], d * d);
    }
  }
  double least = INFINITY;
  for (unsigned bits = 0; bits < 1u << 16; ++bits) {
    double error = 0;
    for (unsigned row = 0; row < 16; ++row) {
      const auto bit = [&](unsigned r) { return bits >> (r % 16) & 1; };
      error += errors[row][2 * (bit(row) ^ bit(row + 14)) + bit(row + 15)];
    }
    least = std::min(least, error);
  }
  return least;
}

TEST(Trellis, CodesAreTheBestOfAllPaths) {
  std::mt19937 rng(12);
  std::normal_distribution<float> normal;
  for (const Kind& kind : kKinds) {
    const WeightFormat& f = format_of(kind);
    for (const int n_rows : {1, 2, 3, 13, 14, 15, 16}) {
      for (int trial = 0; trial < 6; ++trial) {
        float wanted[16], scales[16];
        for (int row = 0; row < 16; ++row) {
          wanted[row] = normal(rng);
          scales[row] = trial == 0 && row % 3 == 0 ? 0.0f : std::exp2(normal(rng)) / 16;
        }
        int8_t codes[16];
        f.round_rows(wanted, scales, n_rows, codes);
        double error = 0;
        for (int row = 0; row < n_rows; ++row) {
          const double d = double{wanted[row]} - codes[row] * double{scales[row]};
          error += d * d;
        }
        const double least = least_error(kind, wanted, scales, n_rows);
        EXPECT_NEAR(error, least, 1e-5 * least + 1e-9) << f.name << " rows " << n_rows;
        // A packer keeps them, and so does another rounding.
        std::vector<uint8_t> tile(f.tile_bytes(1));
        f.pack_codes(codes, 1, n_rows, 1, tile.data());
        for (int row = 0; row < n_rows; ++row) {
          EXPECT_EQ(f.element(tile.data(), 1, row, 0), codes[row]) << f.name << " row " << row;
        }
      }
    }
  }
}

TEST(Trellis, ScalesComeBackExactly) {
  std::mt19937 rng(13);
  const std::vector<int8_t> codes(16 * 600, 2);
  for (const Kind& kind : kKinds) {
    const WeightFormat& f = format_of(kind);
    std::vector<uint8_t> tile(f.tile_bytes(600));
    for (int trial = 0; trial < 100; ++trial) {
      std::vector<float> scales;
      for (int part = 0; part < 16 * 3; ++part) {  // 8, 8 and 3 groups of each row
        const std::vector<float> some = random_products(part % 3 == 2 ? 3 : 8, 0, 15, rng);
        scales.insert(scales.end(), some.begin(), some.end());
      }
      f.pack_codes(codes.data(), 600, 16, 600, tile.data());
      f.pack_scales(scales.data(), nullptr, 16, 600, tile.data());
      ASSERT_EQ(f.find_invalid(tile.data(), tile.size()), -1);
      for (int row = 0; row < 16; ++row) {
        for (int g = 0; g < 19; ++g) {
          ASSERT_EQ(f.scale(tile.data(), row, g), scales[static_cast<size_t>(19 * row + g)])
              << f.name << " row " << row << " group " << g;
        }
      }
    }
  }
}

TEST(Trellis, BadScalesAreFound) {
  for (const Kind& kind : kKinds) {
    const size_t segment = kScales + 16 * 64 * static_cast<size_t>(kind.bits);
    expect_invalid_found(
        format_of(kind), {0x7C00, 0xFC00, 0x7E01, 0x8080},
        [&](size_t at, uint16_t bits) { return at % segment < 64 && !is_finite_half(bits); });
  }
}

// The best levels of one scale lose 0.343 of normal weights in two bits and 0.186 in three (Max,
// Quantizing for Minimum Distortion, 1960).
TEST(Trellis, ErrorIsSmall) {
  const std::vector<float> w = normals(16 * 1024, 5, 0.02f);
  EXPECT_LT(relative_error(w, stored(format_info(FormatId::kTcq2), w, 1024)), 0.295);
  EXPECT_LT(relative_error(w, stored(format_info(FormatId::kTcq3), w, 1024)), 0.145);
}

TEST(Trellis, ImportanceDecides) {
  const std::vector<float> w = normals(16 * 256, 6, 0.02f);
  std::vector<float> importance(256);
  for (size_t i = 0; i < importance.size(); ++i) importance[i] = i % 8 == 0 ? 100.0f : 1.0f;
  const std::vector<float> unseen(256, 0.0f);
  for (const Kind& kind : kKinds) {
    const WeightFormat& f = format_of(kind);
    EXPECT_LT(relative_error(w, stored(f, w, 256, importance.data()), importance),
              0.97 * relative_error(w, stored(f, w, 256), importance));
    EXPECT_EQ(stored(f, w, 256, unseen.data()), stored(f, w, 256));
  }
}

TEST(Trellis, OddRows) {
  for (const Kind& kind : kKinds) {
    const WeightFormat& f = format_of(kind);
    EXPECT_EQ(stored(f, std::vector<float>(3 * 70, 0.0f), 70), std::vector<float>(3 * 70, 0.0f));
    // Rows of one value alternate between levels.
    for (const float v : {0x1.de1ffep-14f, -0.25f, 1000.0f, -60000.0f}) {
      const std::vector<float> w(16 * 70, v);
      EXPECT_LT(relative_error(w, stored(f, w, 70)), 0.2) << f.name << " " << v;
    }
    // One large weight makes the others of its row that share its f16 zero, and leaves its other
    // 256 inputs alone.
    std::vector<float> w = normals(16 * 512, 7, 1e-3f);
    const std::vector<float> before = stored(f, w, 512);
    w[40] = 6e4f;
    const std::vector<float> got = stored(f, w, 512);
    for (size_t i = 0; i < 512; ++i) {
      if (i / 32 == 1) continue;
      EXPECT_EQ(got[i], i < 256 ? 0.0f : before[i]) << f.name << " " << i;
    }
    // It loses a little to the others of its group, which have no level 0.
    EXPECT_NEAR(got[40], 6e4f, 8e3f) << f.name;
    // Rows of padding are zeros, whatever their codes.
    std::vector<uint8_t> tile(f.tile_bytes(40));
    ASSERT_TRUE(f.quantise_tile(w.data(), 40, 5, 40, nullptr, tile.data()).ok());
    for (int row = 5; row < 16; ++row) EXPECT_EQ(f.scale(tile.data(), row, 1), 0.0f);
    const float bad[2][3] = {{0, NAN, 0}, {0, 0, -INFINITY}};
    for (const auto& row : bad) {
      const Status status = f.quantise_tile(row, 3, 1, 3, nullptr, tile.data());
      EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
    }
    const float huge[1] = {1e30f};
    EXPECT_EQ(f.quantise_tile(huge, 1, 1, 1, nullptr, tile.data()).code(), MOE_ERR_RANGE);
  }
}

}  // namespace
}  // namespace moe
