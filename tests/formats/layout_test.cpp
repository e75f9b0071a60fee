// SPDX-License-Identifier: MIT
// The placement of matrices in a blob.

#include "formats/moe/layout.h"

#include <gtest/gtest.h>

namespace moe {
namespace {

BlobMatrix matrix(Role role, FormatId format, int32_t rows, int32_t cols,
                  ScaleKind scale = ScaleKind::kNone) {
  BlobMatrix m;
  m.role = role;
  m.format = format;
  m.scale = scale;
  m.rows = rows;
  m.cols = cols;
  return m;
}

BlobLayout layout_of(std::initializer_list<BlobMatrix> matrices) {
  BlobLayout layout;
  for (const BlobMatrix& m : matrices) EXPECT_TRUE(layout.matrices.push(m).ok());
  return layout;
}

TEST(Layout, GateAndUpAlternateAndScalesComeLast) {
  BlobLayout l = layout_of({matrix(Role::kGate, FormatId::kTernary2, 40, 32, ScaleKind::kTensor),
                            matrix(Role::kUp, FormatId::kTernary2, 40, 32, ScaleKind::kRow),
                            matrix(Role::kDown, FormatId::kTernary2, 32, 40, ScaleKind::kTensor),
                            matrix(Role::kUpBias, FormatId::kF32, 40, 1)});
  ASSERT_TRUE(place(&l).ok());
  const auto& m = l.matrices;
  EXPECT_EQ(m[0].offset, 0u);  // 3 tiles of 2 blocks
  EXPECT_EQ(m[0].tile_stride, 256u);
  EXPECT_EQ(m[1].offset, 128u);
  EXPECT_EQ(m[1].tile_stride, 256u);
  EXPECT_EQ(m[2].offset, 768u);  // 2 tiles of 3 blocks
  EXPECT_EQ(m[2].tile_stride, 192u);
  EXPECT_EQ(m[3].offset, 1152u);  // 48 floats
  EXPECT_EQ(m[3].tile_stride, 64u);
  EXPECT_EQ(m[0].scales_offset, 1344u);
  EXPECT_EQ(m[1].scales_offset, 1408u);  // 48 floats
  EXPECT_EQ(m[2].scales_offset, 1600u);
  EXPECT_EQ(m[3].scales_offset, 0u);
  EXPECT_EQ(l.bytes, 1664u);
}

TEST(Layout, GateAndUpOfDifferentFormatsLieApart) {
  BlobLayout l = layout_of({matrix(Role::kGate, FormatId::kTernary2, 16, 32, ScaleKind::kTensor),
                            matrix(Role::kUp, FormatId::kInt8, 16, 32, ScaleKind::kRow)});
  ASSERT_TRUE(place(&l).ok());
  EXPECT_EQ(l.matrices[0].tile_stride, 128u);
  EXPECT_EQ(l.matrices[1].offset, 128u);
  EXPECT_EQ(l.matrices[1].tile_stride, 512u);
}

TEST(Layout, OddHalfTilesAreRoundedUp) {
  BlobLayout l = layout_of({matrix(Role::kWeight, FormatId::kBf16, 17, 3)});
  ASSERT_TRUE(place(&l).ok());
  EXPECT_EQ(l.matrices[0].tile_stride, 128u);  // 96 bytes of values
  EXPECT_EQ(l.bytes, 256u);
}

TEST(Layout, ViewPointsIntoTheBlob) {
  BlobLayout l = layout_of({matrix(Role::kGate, FormatId::kInt8, 16, 8, ScaleKind::kRow),
                            matrix(Role::kUp, FormatId::kInt8, 16, 8, ScaleKind::kRow)});
  ASSERT_TRUE(place(&l).ok());
  alignas(64) uint8_t blob[1024] = {};
  ASSERT_LE(l.bytes, sizeof blob);
  const Matrix up = view(l.matrices[1], blob);
  EXPECT_EQ(up.tiles, blob + 128);
  EXPECT_EQ(up.tile_stride, 256);
  EXPECT_EQ(reinterpret_cast<const uint8_t*>(up.scales), blob + l.matrices[1].scales_offset);
  EXPECT_TRUE(view(l.matrices[1], nullptr).empty());
}

TEST(Layout, ImpossibleMatricesAreRefused) {
  BlobMatrix bad[] = {
      matrix(Role::kQ, FormatId::kF32, 0, 4),
      matrix(Role::kQ, FormatId::kF32, 4, 0),
      matrix(Role::kQ, FormatId::kF32, -1, 4),
      matrix(Role::kQ, FormatId::kF32, (1 << 24) + 1, 4),
      matrix(Role::kQ, FormatId::kF32, 4, (1 << 20) + 1),
      matrix(Role::kQ, FormatId::kInt8, 4, 65537, ScaleKind::kRow),
      matrix(Role::kQ, FormatId::kF32, 1 << 24, 1 << 20),  // 2^46 bytes
      matrix(Role::kQ, FormatId::kInt8, 4, 4),             // no scales
      matrix(Role::kQ, FormatId::kF32, 4, 4, ScaleKind::kRow),
      matrix(Role::kQ, FormatId::kInt8, 4, 4, ScaleKind::kGroup),
      matrix(Role::kQ, FormatId::kTernary2, 4, 4, ScaleKind::kGroup),  // group 0
      matrix(Role::kQ, FormatId::kTernary2, 4, 4, ScaleKind::kGroup),
      matrix(Role::kQ, FormatId::kTernary2, 4, 4, ScaleKind::kTensor),
      matrix(Role::kQ, FormatId::kBf16, 4, 4),
      matrix(Role::kQ, FormatId::kF32, 4, 4),
  };
  bad[11].group = 96;
  bad[12].group = 64;
  bad[13].act = ActPrecision::kA8;
  bad[14].sublayer = -2;
  for (const BlobMatrix& m : bad) {
    BlobLayout l = layout_of({m});
    EXPECT_FALSE(place(&l).ok()) << &m - bad;
  }
  BlobLayout empty;
  EXPECT_EQ(place(&empty).code(), MOE_ERR_SHAPE);
}

TEST(Layout, Names) {
  char text[kTensorNameBytes];
  BlobMatrix m = matrix(Role::kUp, FormatId::kF32, 1, 1);
  EXPECT_STREQ(tensor_name(Part::kExperts, 3, 7, m, text), "layers.3.experts.7.up");
  EXPECT_STREQ(segment_name(Part::kExperts, 3, 7, text), "layers.3.experts.7");
  m.sublayer = 2;
  EXPECT_STREQ(tensor_name(Part::kExperts, 3, 7, m, text), "layers.3.experts.7.2.up");
  m = matrix(Role::kWeight, FormatId::kF32, 1, 1);
  EXPECT_STREQ(tensor_name(Part::kFinalNorm, -1, -1, m, text), "final_norm.weight");
}

}  // namespace
}  // namespace moe
