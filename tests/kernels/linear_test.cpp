// SPDX-License-Identifier: MIT
// linear() of every instruction set gives the bits of the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ostream>

#include "tests/kernels/linear_problem.h"
#include "tests/support/every_isa.h"
#include "tests/support/weight_codes.h"

namespace moe {
namespace {

struct Kind {
  FormatId format;
  ScaleKind scale;
  int32_t group;
  ActPrecision act;
};

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const ActPrecision act :
       {ActPrecision::kF32, ActPrecision::kA8, ActPrecision::kA8Block, ActPrecision::kA8Group}) {
    for (const WeightFormat& f : kWeightFormats) {
      if (f.table || activations_instead(f, act) != nullptr) continue;
      for (const ScaleKind scale : {ScaleKind::kNone, ScaleKind::kTensor, ScaleKind::kRow}) {
        if (f.can_have(scale)) kinds.push_back({f.id, scale, 0, act});
      }
      for (const int32_t group : scale_groups(f)) {
        kinds.push_back({f.id, ScaleKind::kGroup, group, act});
      }
    }
  }
  return kinds;
}

LinearShape shape_of(const Kind& k, int32_t rows, int32_t cols, int32_t n) {
  return {k.format, k.scale, k.group, k.act, rows, cols, n};
}

std::string describe(const LinearShape& s, const CpuKernels& kernels) {
  return std::string(kernels.name) + ": " + format_info(s.format).name + " scales " +
         std::to_string(static_cast<int>(s.scale)) + " group " + std::to_string(s.group) +
         " activations " + std::to_string(static_cast<int>(s.act)) + " (" + std::to_string(s.rows) +
         ", " + std::to_string(s.cols) + ") n " + std::to_string(s.n);
}

::testing::AssertionResult same_bits(const float* got, const std::vector<float>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], 4) == 0) continue;
    return ::testing::AssertionFailure()
           << "output " << i << ": " << got[i] << ", by definition " << want[i];
  }
  return ::testing::AssertionSuccess();
}

void expect_definition(const LinearShape& s, std::mt19937& rng) {
  const LinearProblem problem(s, rng);
  ASSERT_TRUE(check_matrix(problem.matrix()).ok()) << check_matrix(problem.matrix()).text();
  std::vector<float> want;
  for (int32_t i = 0; i < s.n; ++i) {
    const std::vector<float> row = problem.expected(i);
    want.insert(want.end(), row.begin(), row.end());
  }
  for (const CpuKernels* kernels : every_isa()) {
    ASSERT_TRUE(same_bits(problem.run(*kernels).data(), want)) << describe(s, *kernels);
  }
}

TEST(Linear, RunsOnAmxWhereTheTestsEmulateIt) {
  if (std::getenv("MOE_TEST_AMX") == nullptr) GTEST_SKIP() << "MOE_TEST_AMX is not set";
  if (!cpu_has_avx512vnni()) GTEST_SKIP() << "no AVX-512 VNNI to emulate it on";
  EXPECT_STREQ(every_isa()[0]->name, "amx");
}

TEST(Linear, EveryKindMatchesItsDefinition) {
  std::mt19937 rng(11);
  for (const Kind& k : all_kinds()) {
    for (const int32_t n : {1, 2, 3, 7, 8, 9, 33}) {
      expect_definition(shape_of(k, 40, 300, n), rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Linear, RaggedShapes) {
  std::mt19937 rng(12);
  for (const Kind& k : all_kinds()) {
    for (const int32_t cols :
         {1, 3, 5, 15, 16, 17, 20, 21, 63, 65, 240, 241, 255, 256, 257, 277, 512, 1023}) {
      expect_definition(shape_of(k, cols % 2 == 0 ? 1 : 17, cols, cols % 3 + 1), rng);
      if (HasFatalFailure()) return;
    }
    for (const int32_t rows : {1, 15, 16, 31, 33, 64, 80}) {
      expect_definition(shape_of(k, rows, 70, 5), rng);
      if (HasFatalFailure()) return;
    }
  }
}

// Few and many rows, with several tiles and more inputs than a panel of decoded weights holds.
TEST(Linear, TilesAndPanels) {
  std::mt19937 rng(18);
  for (const Kind& k : all_kinds()) {
    if (k.act == ActPrecision::kF32) continue;
    for (const int32_t n : {4, 9, 16, 17, 33, 140}) {
      expect_definition(shape_of(k, n == 140 ? 40 : 70, 700, n), rng);
      if (HasFatalFailure()) return;
    }
    if (k.scale != ScaleKind::kGroup) continue;
    for (const int32_t n : {5, 37, 130}) {  // also more groups than such a panel holds
      expect_definition(shape_of(k, 18, 1100, n), rng);
      if (HasFatalFailure()) return;
    }
  }
}

// Two products of one input computed together have the bits of each one alone.
void expect_pair(LinearShape shape, std::mt19937& rng) {
  const int32_t n = shape.n;
  const LinearProblem gate(shape, rng);
  shape.bias = true;
  const LinearProblem up(shape, rng);
  const AlignedBytes scratch(linear_input_bytes(n, shape.cols));
  const LinearInput input =
      make_linear_input(shape.act, gate.x(), shape.cols, n, shape.cols, nullptr, scratch.data());
  for (const CpuKernels* kernels : every_isa()) {
    if (shape.act != ActPrecision::kF32) kernels->quantise_rows(input, 0, n);
    std::vector<float> want[2], got[2];
    for (std::vector<float>* y : {&want[0], &want[1], &got[0], &got[1]}) {
      y->assign(static_cast<size_t>(shape.rows * n), -7.0f);
    }
    LinearArgs alone[] = {gate.args(input, want[0].data()), up.args(input, want[1].data())};
    LinearArgs pair[] = {gate.args(input, got[0].data()), up.args(input, got[1].data())};
    pair[0].paired = &pair[1];
    for (int i = 0; i < 2; ++i) {
      alone[i].tile_begin = pair[i].tile_begin = 1;
      kernels->linear(alone[i]);
    }
    kernels->linear(pair[0]);
    ASSERT_TRUE(same_bits(got[0].data(), want[0])) << describe(shape, *kernels);
    ASSERT_TRUE(same_bits(got[1].data(), want[1])) << describe(shape, *kernels);
  }
}

TEST(Linear, TwinsAreWhatEachIsAlone) {
  std::mt19937 rng(20);
  for (const Kind& k : all_kinds()) {
    for (const int32_t n : {1, 3, 8, 9, 33}) {
      expect_pair(shape_of(k, 70, 300, n), rng);
      if (HasFatalFailure()) return;
    }
  }
}

// Enough rows and inputs to need two chunks.
TEST(Linear, TwinsInChunks) {
  std::mt19937 rng(21);
  for (const ActPrecision act : {ActPrecision::kA8, ActPrecision::kA8Block}) {
    expect_pair({FormatId::kTernary2, ScaleKind::kRow, 0, act, 48, 8000, 140}, rng);
  }
}

// An empty range of tiles writes nothing.
TEST(Linear, NoTilesIsNothing) {
  std::mt19937 rng(19);
  for (const Kind& k : all_kinds()) {
    for (const int32_t n : {1, 3, 8, 40}) {
      const LinearProblem problem(shape_of(k, 40, 300, n), rng);
      const AlignedBytes scratch(linear_input_bytes(n, 300));
      const LinearInput input =
          make_linear_input(k.act, problem.x(), 300, n, 300, nullptr, scratch.data());
      for (const CpuKernels* kernels : every_isa()) {
        if (k.act != ActPrecision::kF32) kernels->quantise_rows(input, 0, n);
        std::vector<float> y(static_cast<size_t>(40 * n), -7.0f);
        LinearArgs args = problem.args(input, y.data());
        for (const int64_t tile : {0, 1, 3}) {
          args.tile_begin = args.tile_end = tile;
          kernels->linear(args);
        }
        for (const float v : y) ASSERT_EQ(v, -7.0f) << kernels->name;
      }
    }
  }
}

TEST(Linear, NoRowsIsNothing) {
  std::mt19937 rng(13);
  for (const Kind& k : all_kinds()) {
    const LinearProblem problem(shape_of(k, 16, 64, 0), rng);
    for (const CpuKernels* kernels : every_isa()) EXPECT_TRUE(problem.run(*kernels).empty());
  }
}

TEST(Linear, BiasScaleAndAccumulate) {
  std::mt19937 rng(14);
  for (const Kind& k : all_kinds()) {
    for (const bool bias : {false, true}) {
      for (const bool accumulate : {false, true}) {
        LinearShape s = shape_of(k, 21, 100, 3);
        s.bias = bias;
        s.accumulate = accumulate;
        s.scale_y = accumulate && !bias ? 1.0f : 0.37f;
        expect_definition(s, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The result of a row is the same alone, in a batch, in another order and repeated.
TEST(Linear, RowsDoNotSeeEachOther) {
  std::mt19937 rng(15);
  for (const Kind& k : all_kinds()) {
    const LinearShape s = shape_of(k, 37, 520, 19);
    const LinearProblem problem(s, rng);
    for (const CpuKernels* kernels : every_isa()) {
      const std::vector<float> all = problem.run(*kernels);
      for (const std::vector<int32_t>& ids : {std::vector<int32_t>{7},
                                              {18, 0, 7},
                                              {3, 3, 3, 3, 3, 3, 3, 3, 3, 1},
                                              {17, 16, 15, 14}}) {
        const std::vector<float> some = problem.run(*kernels, ids);
        for (size_t i = 0; i < ids.size(); ++i) {
          const auto row = all.begin() + static_cast<ptrdiff_t>(ids[i]) * s.rows;
          ASSERT_TRUE(same_bits(&some[i * static_cast<size_t>(s.rows)],
                                std::vector<float>(row, row + s.rows)))
              << describe(s, *kernels);
        }
      }
    }
  }
}

// More rows than fit in one chunk.
TEST(Linear, ManyRows) {
  std::mt19937 rng(16);
  for (const Kind& k : {Kind{FormatId::kTernary2, ScaleKind::kRow, 0, ActPrecision::kA8},
                        Kind{FormatId::kInt8, ScaleKind::kRow, 0, ActPrecision::kA8Block}}) {
    expect_definition(shape_of(k, 17, 17000, 71), rng);
  }
}

// The product of each row with activations that all are `code`. Some row has the extreme weight at
// every input: where 16 rows depend on one another, not all can.
std::vector<float> extreme_products(const LinearProblem& problem, int weight_code, int code,
                                    int32_t step) {
  const Matrix& m = problem.matrix();
  std::vector<float> products;
  bool whole = false;
  for (int32_t row = 0; row < m.rows; ++row) {
    const float* w = problem.elements(row);
    float product = 0;
    int64_t extreme = 0;
    for (int32_t at = 0; at < m.cols; at += step) {
      int64_t sum = 0;
      for (int32_t i = at; i < std::min(at + step, m.cols); ++i) {
        sum += static_cast<int64_t>(w[i]);
        extreme += w[i] == static_cast<float>(weight_code);
      }
      product += static_cast<float>(sum * code);
    }
    products.push_back(product);
    whole = whole || extreme == m.cols;
  }
  EXPECT_TRUE(whole) << format_info(m.format).name;
  return products;
}

// The largest possible sums: every product has the same sign. All activation codes are `code`,
// which may be -128, although no quantiser produces that from finite inputs.
void expect_extreme(const Kind& k, int weight_code, int code, int32_t cols, int32_t n) {
  const LinearShape s = shape_of(k, 18, cols, n);
  const LinearProblem problem(s, weight_code);
  const AlignedBytes scratch(linear_input_bytes(n, cols));
  const LinearInput input =
      make_linear_input(k.act, problem.x(), cols, n, cols, nullptr, scratch.data());
  const int32_t step = k.scale == ScaleKind::kGroup ? k.group : inputs_per_scale(k.act, cols);
  const std::vector<float> want = extreme_products(problem, weight_code, code, step);
  for (const CpuKernels* kernels : every_isa()) {
    kernels->quantise_rows(input, 0, n);  // every code is 127
    for (int64_t i = 0; i < int64_t{n} * input.padded_cols; ++i) {
      ASSERT_TRUE(input.codes[i] == 127 || input.codes[i] == 0);
      if (input.codes[i] != 0) input.codes[i] = static_cast<int8_t>(code);
    }
    for (int64_t i = 0; i < int64_t{n} * (input.padded_cols / kSumInputs + 1); ++i) {
      input.sums[i] = input.sums[i] / 127 * code;
    }
    for (int64_t i = 0; i < int64_t{n} * input.n_scales; ++i) input.scales[i] = 1;
    std::vector<float> y(static_cast<size_t>(s.rows) * static_cast<size_t>(n));
    kernels->linear(problem.args(input, y.data()));
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], want[i % want.size()]) << describe(s, *kernels) << " code " << code;
    }
  }
}

TEST(Linear, LargestSumsDoNotWrapOrSaturate) {
  for (const Kind& k : all_kinds()) {
    // The codes of only_blocks() cannot be chosen.
    if (k.act == ActPrecision::kF32 || format_info(k.format).only_blocks()) continue;
    for (const int sign : {-1, 1}) {
      const int weight_code = extreme_weight_code(format_info(k.format), sign);
      for (const int code : {127, -127, -128}) {
        for (const int32_t cols : {4, 255, 4096, 65536}) {
          for (const int32_t n : {1, 2, 15}) {
            // These are slow, and covered by the other cases.
            if (cols == 65536 && (n != 1 || code == -127)) continue;
            if (cols == 4096 && (n == 2 || code == -127)) continue;
            expect_extreme(k, weight_code, code, cols, n);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Some blocks have their largest values side by side.
TEST(Linear, LargestInputsOfRandomBlocks) {
  std::mt19937 rng(22);
  for (const Kind& k : all_kinds()) {
    if (k.act == ActPrecision::kF32 || !format_info(k.format).only_blocks()) continue;
    for (const int32_t n : {1, 2, 3, 9}) {
      LinearShape s = shape_of(k, 40, 1000, n);
      s.largest_inputs = true;
      expect_definition(s, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// A format that can have the activations.
LinearShape any_shape(ActPrecision act, int32_t rows, int32_t cols, int32_t n) {
  if (act == ActPrecision::kA8Group) {
    return {FormatId::kInt8Group, ScaleKind::kGroup, 32, act, rows, cols, n};
  }
  return {FormatId::kTernary2, ScaleKind::kTensor, 0, act, rows, cols, n};
}

// A row with NaN or infinity gives NaN; the other rows are not affected.
TEST(Linear, NonFiniteInputsGiveNan) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const ActPrecision act :
         {ActPrecision::kA8, ActPrecision::kA8Block, ActPrecision::kA8Group}) {
      for (const CpuKernels* kernels : every_isa()) {
        std::vector<float> x(3 * 300, 0.5f);
        x[300 + 299] = bad;
        const AlignedBytes scratch(linear_input_bytes(3, 300));
        const LinearInput input =
            make_linear_input(act, x.data(), 300, 3, 300, nullptr, scratch.data());
        kernels->quantise_rows(input, 0, 3);
        const LinearProblem problem(any_shape(act, 16, 300, 3), 1);
        std::vector<float> y(48);
        kernels->linear(problem.args(input, y.data()));
        for (size_t i = 0; i < 48; ++i) EXPECT_EQ(std::isnan(y[i]), i / 16 == 1) << kernels->name;
      }
    }
  }
}

// Codes, scales, sums and scaled sums of one row.
void expect_codes(const CpuKernels& kernels, ActPrecision act, const std::vector<float>& x) {
  const auto cols = static_cast<int32_t>(x.size());
  const int32_t block = inputs_per_scale(act, cols);
  const AlignedBytes scratch(linear_input_bytes(1, cols));
  const LinearInput in = make_linear_input(act, x.data(), cols, 1, cols, nullptr, scratch.data());
  kernels.quantise_rows(in, 0, 1);
  std::vector<int8_t> want(static_cast<size_t>(in.padded_cols));
  for (int32_t k = 0; k < cols; k += block) {
    const ActScale s =
        quantise_activations(&x[static_cast<size_t>(k)], std::min(block, cols - k),
                             act == ActPrecision::kA8 ? -128 : -127, &want[static_cast<size_t>(k)]);
    EXPECT_EQ(in.scales[k / block], s.scale) << kernels.name << " at " << k;
  }
  int32_t sum = 0;
  int32_t of_group = 0;
  for (int32_t i = 0; i < in.padded_cols; ++i) {
    if (i % kSumInputs == 0) {
      EXPECT_EQ(in.sums[i / kSumInputs], sum);
    }
    if (i % kActGroup == 0) of_group = sum;
    ASSERT_EQ(in.codes[i], want[static_cast<size_t>(i)]) << kernels.name << " at " << i;
    sum += in.codes[i];
    if (i < cols && (i + 1) % kActGroup == 0) {
      EXPECT_EQ(in.scaled_sums[i / kActGroup],
                static_cast<float>(sum - of_group) * in.scales[i / block])
          << kernels.name << " at " << i;
    }
  }
  EXPECT_EQ(in.sums[in.padded_cols / kSumInputs], sum);
}

TEST(Linear, QuantisedRowsMatchTheirDefinition) {
  std::mt19937 rng(17);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (const int32_t cols : {1, 15, 16, 31, 32, 33, 100, 256, 289, 300, 1000}) {
    std::vector<float> x(static_cast<size_t>(cols));
    for (float& v : x) v = normal(rng) * std::exp2(normal(rng));
    for (const CpuKernels* kernels : every_isa()) {
      expect_codes(*kernels, ActPrecision::kA8, x);
      expect_codes(*kernels, ActPrecision::kA8Block, x);
      expect_codes(*kernels, ActPrecision::kA8Group, x);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace moe
