// SPDX-License-Identifier: MIT
// Matrices of quant/formats.h: sizes, scales, checks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "quant/formats.h"

namespace moe {
namespace {

Matrix valid(FormatId format, ScaleKind scale, std::vector<uint8_t>* tiles,
             std::vector<float>* scales) {
  Matrix m;
  m.format = format;
  m.scale_kind = scale;
  m.rows = 20;
  m.cols = 300;
  m.group = scale == ScaleKind::kGroup ? 128 : 0;
  m.tile_stride = static_cast<int64_t>(format_info(format).tile_bytes(m.cols));
  tiles->assign(2 * static_cast<size_t>(m.tile_stride), 0);
  scales->assign(scale_count(format, scale, m.group, m.rows, m.cols), 0.0f);
  for (size_t i = 0; i < scales->size(); ++i) (*scales)[i] = static_cast<float>(i + 1);
  m.tiles = tiles->data();
  m.scales = scales->data();
  return m;
}

TEST(Matrix, ScaleCountsAndPlaces) {
  EXPECT_EQ(scale_count(FormatId::kF32, ScaleKind::kNone, 0, 20, 300), 0u);
  EXPECT_EQ(scale_count(FormatId::kInt8, ScaleKind::kTensor, 0, 20, 300), 1u);
  EXPECT_EQ(scale_count(FormatId::kInt8, ScaleKind::kRow, 0, 20, 300), 32u);
  EXPECT_EQ(scale_count(FormatId::kTernary2, ScaleKind::kGroup, 128, 20, 300), 32u * 3);
  EXPECT_EQ(scale_count(FormatId::kInt4, ScaleKind::kGroup, 32, 20, 300), 0u);  // in the tiles
  EXPECT_EQ(scale_index(ScaleKind::kTensor, 0, 300, 17, 299), 0);
  EXPECT_EQ(scale_index(ScaleKind::kRow, 0, 300, 17, 299), 17);
  EXPECT_EQ(scale_index(ScaleKind::kGroup, 128, 300, 17, 299), (1 * 3 + 2) * 16 + 1);
}

TEST(Matrix, WeightIsCodeTimesScale) {
  std::vector<uint8_t> tiles;
  std::vector<float> scales;
  const Matrix m = valid(FormatId::kTernary2, ScaleKind::kGroup, &tiles,
                         &scales);  // all bytes are 0, which is code -1
  std::vector<float> row(300);
  read_row(m, 17, row.data());
  for (int32_t c = 0; c < 300; ++c) {
    const float scale = scales[static_cast<size_t>(scale_index(m.scale_kind, m.group, 300, 17, c))];
    EXPECT_EQ(weight(m, 17, c), -scale);
    EXPECT_EQ(row[static_cast<size_t>(c)], -scale);
  }
}

TEST(Matrix, TilesMayLieApart) {
  std::vector<uint8_t> tiles;
  std::vector<float> scales;
  Matrix m = valid(FormatId::kInt8, ScaleKind::kTensor, &tiles, &scales);
  tiles.resize(4 * static_cast<size_t>(m.tile_stride));
  m.tiles = tiles.data();
  tiles[2 * static_cast<size_t>(m.tile_stride)] = 7;
  m.tile_stride *= 2;
  EXPECT_EQ(weight(m, 16, 0), 7.0f);
}

TEST(Matrix, BytesAreCountedOrRefused) {
  EXPECT_EQ(*matrix_bytes(FormatId::kTernary2, 1024, 2048), 1024u * 2048 / 4);
  EXPECT_EQ(*matrix_bytes(FormatId::kTernary3, 17, 256), 2u * 13 * 64);
  EXPECT_EQ(*matrix_bytes(FormatId::kI32, 32000, 1), 32000u * 4);
  EXPECT_EQ(matrix_bytes(FormatId::kF32, 0, 5).status().code(), MOE_ERR_SHAPE);
  EXPECT_EQ(matrix_bytes(FormatId::kF32, 5, -1).status().code(), MOE_ERR_SHAPE);
  EXPECT_EQ(matrix_bytes(FormatId::kF32, int64_t{1} << 40, 5).status().code(), MOE_ERR_SHAPE);
}

TEST(Matrix, WhatKernelsCannotRunIsRefused) {
  std::vector<uint8_t> tiles;
  std::vector<float> scales;
  const Matrix good = valid(FormatId::kTernary2, ScaleKind::kGroup, &tiles, &scales);
  EXPECT_TRUE(check_matrix(good).ok());
  const auto code = [&](auto change) {
    Matrix m = good;
    change(m);
    return check_matrix(m).code();
  };
  EXPECT_EQ(code([](Matrix& m) { m.rows = 0; }), MOE_ERR_SHAPE);
  EXPECT_EQ(code([](Matrix& m) { m.cols = -4; }), MOE_ERR_SHAPE);
  EXPECT_EQ(code([](Matrix& m) { m.cols = 65537, m.tile_stride = 1 << 30; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](Matrix& m) { m.cols = 65536, m.tile_stride = 1 << 30; }), MOE_OK);
  EXPECT_EQ(code([](Matrix& m) { m.group = 100; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](Matrix& m) { m.scale_kind = ScaleKind::kNone; }), MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(code([](Matrix& m) { m.format = FormatId::kInt8, m.tile_stride = 1 << 20; }),
            MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(code([](Matrix& m) { m.tile_stride -= 1; }), MOE_ERR_SHAPE);
  const auto floats = [](Matrix& m) {
    m.format = FormatId::kF32, m.scale_kind = ScaleKind::kNone, m.tile_stride = 1 << 20;
  };
  EXPECT_EQ(code(floats), MOE_OK);
  EXPECT_EQ(code([&](Matrix& m) { floats(m), m.act = ActPrecision::kA8; }), MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(code([&](Matrix& m) { floats(m), m.scale_kind = ScaleKind::kRow; }),
            MOE_ERR_UNSUPPORTED);
}

TEST(Matrix, BadCodesAndScalesAreNamed) {
  std::vector<uint8_t> tiles;
  std::vector<float> scales;
  const Matrix m = valid(FormatId::kTernary2, ScaleKind::kRow, &tiles, &scales);
  EXPECT_TRUE(validate_codes(m).ok());
  tiles[static_cast<size_t>(m.tile_stride) + 65] = 0x30;
  Status s = validate_codes(m);
  EXPECT_EQ(s.code(), MOE_ERR_RANGE);
  EXPECT_NE(std::strstr(s.text(), "rows 16..31, block 1 of 19"), nullptr) << s.text();
  tiles[static_cast<size_t>(m.tile_stride) + 65] = 0;
  for (const float bad : {0.0f, -1.0f, INFINITY, NAN, -INFINITY}) {
    scales[3] = bad;
    s = validate_codes(m);
    EXPECT_EQ(s.code(), MOE_ERR_RANGE);
    EXPECT_NE(std::strstr(s.text(), "scale 3"), nullptr) << s.text();
  }
  const Matrix floats = valid(FormatId::kF32, ScaleKind::kNone, &tiles, &scales);
  EXPECT_TRUE(validate_codes(floats).ok());
  const float nan = NAN;
  std::memcpy(&tiles[256], &nan, 4);
  EXPECT_EQ(validate_codes(floats).code(), MOE_ERR_NON_FINITE);
}

}  // namespace
}  // namespace moe
