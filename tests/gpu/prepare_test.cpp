// SPDX-License-Identifier: MIT
// prepare_rows() compared with the CPU's norms and the definition of int8 activations.

#include "kernels/cpu/select.h"
#include "kernels/cuda/ops.h"
#include "quant/activation.h"
#include "tests/gpu/on_device.h"
#include "tests/kernels/random_floats.h"

namespace moe::cuda {
namespace {

struct Case {
  int32_t rows;
  int32_t d;
  int32_t ld_x;
  NormKind norm;
  bool weight;
  bool bias;
};

const CpuKernels& scalar() { return *select_kernels("scalar").value(); }

struct HostCodes {
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;
};

HostCodes host_codes(const std::vector<float>& y, int32_t rows, int32_t d, ActPrecision act) {
  HostCodes out;
  const int32_t step = inputs_per_scale(act, d);
  const auto ld = static_cast<size_t>(codes_ld(d));
  out.codes.assign(static_cast<size_t>(rows) * ld, 0);
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t at = 0; at < d; at += step) {
      const int32_t n = std::min(step, d - at);
      int8_t* codes = out.codes.data() + static_cast<size_t>(r) * ld + at;
      const float* x = y.data() + static_cast<int64_t>(r) * d + at;
      const ActScale s = quantise_activations(x, n, act == ActPrecision::kA8 ? -128 : -127, codes);
      out.scales.push_back(s.scale);
      int32_t sum = 0;
      for (int32_t i = 0; i < n; ++i) sum += codes[i];
      out.sums.push_back(sum);
    }
  }
  return out;
}

struct DeviceCodes {
  OnDevice<int8_t> codes;
  OnDevice<float> scales;
  OnDevice<int32_t> sums;
  Codes op;
  DeviceCodes(int32_t rows, int32_t d, ActPrecision act)
      : codes(static_cast<size_t>(rows * codes_ld(d))),
        scales(static_cast<size_t>(rows * scales_per_row(act, d))),
        sums(static_cast<size_t>(rows * scales_per_row(act, d))),
        op{codes, codes_ld(d), scales, sums} {}
};

/// Compares codes, except in rows whose scale is NaN.
void expect_codes(const DeviceCodes& found, const HostCodes& expected, int32_t d,
                  ActPrecision act) {
  EXPECT_SAME_BITS(found.scales.values(), expected.scales);
  const std::vector<int8_t> codes = found.codes.values();
  const std::vector<int32_t> sums = found.sums.values();
  const int32_t step = inputs_per_scale(act, d);
  const int32_t per_row = (d + step - 1) / step;
  const int64_t ld = codes_ld(d);
  for (size_t i = 0; i < expected.codes.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / ld;
    const auto col = static_cast<int64_t>(i) % ld;
    const auto scale = static_cast<size_t>(row * per_row + col / step);
    if (col < d && expected.scales[scale] != expected.scales[scale]) continue;
    ASSERT_EQ(codes[i], expected.codes[i]) << "row " << row << ", input " << col;
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    if (expected.scales[i] != expected.scales[i]) continue;
    EXPECT_EQ(sums[i], expected.sums[i]) << i;
  }
}

std::vector<float> rows_of(const Case& c) {
  std::vector<float> x = random_floats(static_cast<size_t>(c.rows) * static_cast<size_t>(c.ld_x),
                                       static_cast<unsigned>(c.d + 17), 3);
  const auto at = [&](int32_t r, int32_t i) -> float& {
    return x[static_cast<size_t>(r) * static_cast<size_t>(c.ld_x) + static_cast<size_t>(i)];
  };
  for (int32_t i = 0; i < c.d; ++i) {
    if (c.rows > 1) at(1, i) = 0;
    if (c.rows > 2) at(2, i) *= 1e-30f;
    if (c.rows > 3) at(3, i) *= 1e18f;
    if (c.rows > 4) at(4, i) = i % 2 == 0 ? 127.0f : -127.5f;  // ties
  }
  if (c.rows > 5) at(5, c.d / 2) = __builtin_nanf("");
  if (c.rows > 6) at(6, c.d - 1) = -__builtin_inff();
  return x;
}

void run_case(const Case& c, int32_t counted, bool in_place) {
  SCOPED_TRACE(testing::Message() << c.rows << " rows of " << c.d << ", stride " << c.ld_x
                                  << ", norm " << static_cast<int>(c.norm) << ", counted "
                                  << counted << ", in place " << in_place);
  const auto d = static_cast<size_t>(c.d);
  const std::vector<float> x = rows_of(c);
  const std::vector<float> weight = random_floats(d, 5);
  const std::vector<float> bias = random_floats(d, 6);
  Norm norm{c.norm, 1e-5f, c.weight ? weight.data() : nullptr, c.bias ? bias.data() : nullptr};
  const int32_t n = counted >= 0 ? counted : c.rows;
  std::vector<float> y(static_cast<size_t>(n) * d);
  for (int32_t r = 0; r < n; ++r) {
    scalar().norm_row(norm, x.data() + static_cast<int64_t>(r) * c.ld_x, c.d,
                      y.data() + static_cast<int64_t>(r) * c.d);
  }
  const OnDevice<float> device_x(x);
  const OnDevice<float> device_weight(weight);
  const OnDevice<float> device_bias(bias);
  const OnDevice<float> normed(static_cast<size_t>(c.rows) * d);
  const OnDevice<int32_t> count(std::vector<int32_t>{counted});
  const DeviceCodes a8(c.rows, c.d, ActPrecision::kA8);
  const DeviceCodes a8_block(c.rows, c.d, ActPrecision::kA8Block);
  const DeviceCodes a8_group(c.rows, c.d, ActPrecision::kA8Group);
  PrepareOp op;
  op.rows = {c.rows, counted >= 0 ? count.get() : nullptr};
  op.d = c.d;
  op.x = device_x;
  op.ld_x = c.ld_x;
  op.norm.one = {c.norm, 1e-5f, c.weight ? device_weight.get() : nullptr,
                 c.bias ? device_bias.get() : nullptr};
  op.normed = in_place ? device_x : normed;
  op.a8 = a8.op;
  op.a8_block = a8_block.op;
  op.a8_group = a8_group.op;
  ASSERT_EQ(prepare_rows(nullptr, op), cudaSuccess);
  std::vector<float> found = in_place ? device_x.values() : normed.values();
  for (size_t i = static_cast<size_t>(n) * d; i < found.size(); ++i) {
    const float before = in_place ? x[i] : __builtin_bit_cast(float, 0xa5a5a5a5u);
    ASSERT_EQ(bits_of(found[i]), bits_of(before)) << "wrote to a row beyond the number of rows";
  }
  found.resize(y.size());
  EXPECT_SAME_BITS(found, y);
  if (n < c.rows) return;
  expect_codes(a8, host_codes(y, n, c.d, ActPrecision::kA8), c.d, ActPrecision::kA8);
  expect_codes(a8_block, host_codes(y, n, c.d, ActPrecision::kA8Block), c.d,
               ActPrecision::kA8Block);
  expect_codes(a8_group, host_codes(y, n, c.d, ActPrecision::kA8Group), c.d,
               ActPrecision::kA8Group);
}

TEST(CudaPrepare, BitsOfTheCpu) {
  const Case cases[] = {
      {7, 1, 1, NormKind::kRms, true, false},       {7, 15, 15, NormKind::kLayer, true, true},
      {7, 16, 20, NormKind::kRms, false, false},    {9, 100, 100, NormKind::kNone, true, true},
      {7, 128, 128, NormKind::kRms, true, true},    {7, 255, 257, NormKind::kLayer, true, false},
      {8, 256, 256, NormKind::kLayer, false, true}, {7, 257, 257, NormKind::kRms, true, false},
      {3, 768, 768, NormKind::kRms, true, false},   {7, 1000, 1004, NormKind::kLayer, true, true},
      {2, 2048, 2048, NormKind::kRms, true, false}, {1, 9000, 9000, NormKind::kRms, true, false},
  };
  for (const Case& c : cases) run_case(c, -1, false);
}

TEST(CudaPrepare, RowsThatOnlyTheDeviceCounts) {
  run_case({6, 96, 96, NormKind::kRms, true, false}, 0, false);
  run_case({6, 96, 96, NormKind::kRms, true, false}, 5, false);
  run_case({6, 1100, 1100, NormKind::kLayer, true, true}, 3, true);
}

TEST(CudaPrepare, InPlaceAndTooLongForSharedMemory) {
  run_case({7, 100, 100, NormKind::kRms, true, false}, -1, true);
  run_case({2, 24576, 24576, NormKind::kLayer, true, true}, -1, true);  // the longest that fits
  run_case({2, 24580, 24580, NormKind::kLayer, true, true}, -1, true);
  run_case({2, 24581, 24590, NormKind::kRms, true, true}, -1, false);
}

TEST(CudaPrepare, EachRowHasItsGroupsNorm) {
  constexpr int32_t kRows = 5;
  constexpr int32_t kCols = 60;
  const std::vector<float> x = random_floats(kRows * kCols, 1);
  const std::vector<float> weights = random_floats(3 * kCols, 2);
  const OnDevice<float> device_weights(weights);
  std::vector<Norm> host;
  std::vector<Norm> device;
  for (int i = 0; i < 3; ++i) {
    const NormKind kind = i == 1 ? NormKind::kLayer : NormKind::kRms;
    host.push_back({kind, 1e-6f, weights.data() + i * kCols, nullptr});
    device.push_back({kind, 1e-6f, device_weights.get() + i * kCols, nullptr});
  }
  const std::vector<int32_t> group{2, 0, 1, 1, 0};
  std::vector<float> expected(x.size());
  for (int r = 0; r < kRows; ++r) {
    scalar().norm_row(host[static_cast<size_t>(group[static_cast<size_t>(r)])],
                      x.data() + r * kCols, kCols, expected.data() + r * kCols);
  }
  const OnDevice<float> device_x(x);
  const OnDevice<float> y(x.size());
  const OnDevice<Norm> norms(device);
  const OnDevice<int32_t> groups(group);
  PrepareOp op;
  op.rows.n = kRows;
  op.d = kCols;
  op.x = device_x;
  op.ld_x = kCols;
  op.norm.norms = norms;
  op.norm.group = groups;
  op.normed = y;
  ASSERT_EQ(prepare_rows(nullptr, op), cudaSuccess);
  EXPECT_SAME_BITS(y.values(), expected);
}

}  // namespace
}  // namespace moe::cuda
