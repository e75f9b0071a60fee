// SPDX-License-Identifier: MIT
// embed_rows() and cosine_scores() with tables in every format, cap_rows() and gate_rows().

#include <cmath>
#include <limits>
#include <random>

#include "kernels/cpu/select.h"
#include "kernels/cuda/ops.h"
#include "kernels/math.h"
#include "quant/formats.h"
#include "tests/gpu/on_device.h"
#include "tests/kernels/random_floats.h"
#include "tests/support/packed_matrix.h"

namespace moe::cuda {
namespace {

struct TableKind {
  FormatId format;
  ScaleKind scales;
  int32_t group;
};
const TableKind kTableKinds[] = {
    {FormatId::kF32, ScaleKind::kNone, 0},        {FormatId::kBf16, ScaleKind::kNone, 0},
    {FormatId::kF16, ScaleKind::kNone, 0},        {FormatId::kInt8, ScaleKind::kRow, 0},
    {FormatId::kInt8, ScaleKind::kTensor, 0},     {FormatId::kTernary2, ScaleKind::kTensor, 0},
    {FormatId::kTernary2, ScaleKind::kGroup, 64}, {FormatId::kTernary3, ScaleKind::kRow, 0},
    {FormatId::kInt4, ScaleKind::kNone, 0},       {FormatId::kInt4Min, ScaleKind::kNone, 0},
    {FormatId::kInt4K, ScaleKind::kNone, 0},      {FormatId::kInt6K, ScaleKind::kNone, 0},
    {FormatId::kInt8Group, ScaleKind::kNone, 0},  {FormatId::kInt2K, ScaleKind::kNone, 0},
    {FormatId::kInt3K, ScaleKind::kNone, 0},      {FormatId::kTcq2, ScaleKind::kNone, 0},
    {FormatId::kTcq3, ScaleKind::kNone, 0},
};

PackedMatrix random_matrix(const TableKind& kind, int32_t rows, int32_t cols, unsigned seed) {
  const auto n = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  if (kind.scales == ScaleKind::kNone) {
    return {kind.format, random_floats(n, seed, 0.5f), rows, cols};
  }
  std::mt19937 rng(seed);
  const int most = kind.format == FormatId::kInt8 ? 127 : 1;
  std::uniform_int_distribution<int> code(-most, most);
  std::vector<int8_t> codes(n);
  for (int8_t& c : codes) c = static_cast<int8_t>(code(rng));
  std::vector<float> scales =
      random_floats(scale_count(kind.format, kind.scales, kind.group, rows, cols), seed);
  for (float& s : scales) s = 0.1f + s * s;
  return {kind.format, codes, rows, cols, ActPrecision::kF32, kind.scales, scales, kind.group};
}

TEST(CudaEmbed, EveryFormat) {
  for (const TableKind& kind : kTableKinds) {
    for (const int32_t d : {1, 70, 300}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(kind.format) << " of " << d);
      const PackedMatrix table = random_matrix(kind, 37, d, 3);
      const PackedMatrix positions = random_matrix(kTableKinds[1], 20, d, 4);
      const std::vector<BatchRow> rows{{0, 3, 36}, {0, 4, 0}, {1, 19, 17}};
      for (const bool placed : {false, true}) {
        std::vector<float> expected;
        for (const BatchRow& row : rows) {
          std::vector<float> x(static_cast<size_t>(d));
          std::vector<float> p(static_cast<size_t>(d));
          read_row(table, row.token, x.data());
          read_row(positions, row.position, p.data());
          for (size_t i = 0; i < x.size(); ++i) {
            x[i] *= 1.7f;
            if (placed) x[i] += p[i];
          }
          expected.insert(expected.end(), x.begin(), x.end());
        }
        const DeviceMatrix device_table(table);
        const DeviceMatrix device_positions(positions);
        const OnDevice<BatchRow> device_rows(rows);
        const OnDevice<float> y(expected.size());
        EmbedOp op;
        op.table = device_table;
        if (placed) op.positions = device_positions;
        op.rows = device_rows;
        op.n_rows = static_cast<int32_t>(rows.size());
        op.multiplier = 1.7f;
        op.x = y;
        ASSERT_EQ(embed_rows(nullptr, op), cudaSuccess);
        EXPECT_SAME_BITS(y.values(), expected);
      }
    }
  }
}

TEST(CudaEmbed, MoreRowsThanAGridCounts) {
  const PackedMatrix table = random_matrix(kTableKinds[0], 37, 1, 5);
  std::vector<BatchRow> rows;
  std::vector<float> expected;
  for (int32_t i = 0; i < kMostGridY + 5; ++i) {
    rows.push_back({0, i, i % 37});
    expected.push_back(0);
    read_row(table, i % 37, &expected.back());
  }
  const DeviceMatrix device_table(table);
  const OnDevice<BatchRow> device_rows(rows);
  const OnDevice<float> y(expected.size());
  EmbedOp op;
  op.table = device_table;
  op.rows = device_rows;
  op.n_rows = static_cast<int32_t>(rows.size());
  op.multiplier = 1;
  op.x = y;
  ASSERT_EQ(embed_rows(nullptr, op), cudaSuccess);
  EXPECT_SAME_BITS(y.values(), expected);
}

TEST(CudaCap, BitsOfTheCpu) {
  const CpuKernels& kernels = *select_kernels("scalar").value();
  for (const int32_t d : {1, 70, 1000}) {
    std::vector<float> x = random_floats(static_cast<size_t>(3 * d), 5, 40);
    x[0] = 0;
    const OnDevice<float> device_x(x);
    ASSERT_EQ(cap_rows(nullptr, {device_x, 3, d, 30}), cudaSuccess);
    kernels.cap_row(30, x.data(), 3 * d);
    EXPECT_SAME_BITS(device_x.values(), x);
  }
}

TEST(CudaCap, HidesNothingThatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const OnDevice<float> x(
      std::vector<float>{1, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()});
  ASSERT_EQ(cap_rows(nullptr, {x, 1, 4, 30}), cudaSuccess);
  EXPECT_TRUE(std::isfinite(x.values()[0]));
  for (size_t i = 1; i < 4; ++i) EXPECT_FALSE(std::isfinite(x.values()[i])) << i;
}

TEST(CudaGate, BitsOfTheCpu) {
  const CpuKernels& kernels = *select_kernels("scalar").value();
  for (const int32_t d : {1, 70, 1000}) {
    std::vector<float> x = random_floats(static_cast<size_t>(3 * d), 5, 2);
    const std::vector<float> gate = random_floats(static_cast<size_t>(3 * d), 6, 20);
    const OnDevice<float> device_x(x);
    const OnDevice<float> device_gate(gate);
    ASSERT_EQ(gate_rows(nullptr, {device_x, device_gate, 3, d}), cudaSuccess);
    kernels.gate_row(gate.data(), 3 * d, x.data());
    EXPECT_SAME_BITS(device_x.values(), x);
  }
}

TEST(CudaGate, NeighboursShareOne) {
  constexpr size_t kShared = 7;
  std::vector<float> x = random_floats(3 * 70, 5, 2);
  const std::vector<float> gate = random_floats(x.size() / kShared, 6, 20);
  const OnDevice<float> device_x(x);
  const OnDevice<float> device_gate(gate);
  ASSERT_EQ(gate_rows(nullptr, {device_x, device_gate, 3, 70, int32_t{kShared}}), cudaSuccess);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= sigmoid_float(gate[i / kShared]);
  EXPECT_SAME_BITS(device_x.values(), x);
}

// Cosine scores computed by the CPU's kernels.
std::vector<float> host_cosines(const RouterConfig& config, const Matrix& embedding,
                                std::vector<float> z, int32_t n_tokens) {
  const CpuKernels& kernels = *select_kernels("scalar").value();
  const int32_t d = embedding.cols;
  const auto floor = [&](const float* v) {
    const float length = __builtin_sqrtf(kernels.sum_squares(v, d));
    return length < config.cosine_eps ? config.cosine_eps : length;
  };
  for (int32_t t = 0; config.normalise_token && t < n_tokens; ++t) {
    float* row = z.data() + static_cast<int64_t>(t) * d;
    const float divisor = floor(row);
    for (int32_t i = 0; i < d; ++i) row[i] /= divisor;
  }
  std::vector<float> scores(static_cast<size_t>(n_tokens) * static_cast<size_t>(embedding.rows));
  LinearInput input;
  input.n_rows = n_tokens;
  input.n_cols = d;
  input.x = z.data();
  input.ld_x = d;
  LinearArgs args;
  args.weight = &embedding;
  args.input = &input;
  args.y = scores.data();
  args.ld_y = embedding.rows;
  args.tile_end = (embedding.rows + kTileRows - 1) / kTileRows;
  kernels.linear(args);
  std::vector<float> row(static_cast<size_t>(d));
  for (int32_t e = 0; e < embedding.rows; ++e) {
    read_row(embedding, e, row.data());
    const float divisor = floor(row.data());
    for (int32_t t = 0; t < n_tokens; ++t) {
      scores[static_cast<size_t>(t * embedding.rows + e)] /= divisor;
    }
  }
  return scores;
}

TEST(CudaCosine, BitsOfTheCpu) {
  constexpr int32_t kTokens = 5;
  for (const TableKind& kind : kTableKinds) {
    for (const int32_t d : {7, 16, 100}) {
      for (const bool normalise : {false, true}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(kind.format) << " of " << d);
        RouterConfig config;
        config.kind = RouterKind::kCosine;
        config.normalise_token = normalise;
        const PackedMatrix embedding = random_matrix(kind, 70, d, 9);
        std::vector<float> z = random_floats(static_cast<size_t>(kTokens * d), 8);
        std::fill_n(z.begin() + d, d, 0.0f);
        const DeviceMatrix device_embedding(embedding);
        const OnDevice<float> device_z(z);
        const OnDevice<float> scores(kTokens * 70);
        CosineOp op;
        op.config = config;
        op.projected = device_z;
        op.embedding = device_embedding;
        op.n_tokens = kTokens;
        op.scores = scores;
        ASSERT_EQ(cosine_scores(nullptr, op), cudaSuccess);
        EXPECT_SAME_BITS(scores.values(), host_cosines(config, embedding, z, kTokens));
        std::vector<float> lengths(70);
        for (int32_t e = 0; e < 70; ++e) {
          lengths[static_cast<size_t>(e)] = row_length(embedding.get(), e);
        }
        const OnDevice<float> device_lengths(lengths);
        op.lengths = device_lengths;
        ASSERT_EQ(cosine_scores(nullptr, op), cudaSuccess);
        EXPECT_SAME_BITS(scores.values(), host_cosines(config, embedding, z, kTokens));
        const OnDevice<float> others(std::vector<float>(70, 0.25f));
        op.lengths = others;  // are taken as they are
        ASSERT_EQ(cosine_scores(nullptr, op), cudaSuccess);
        EXPECT_NE(scores.values(), host_cosines(config, embedding, z, kTokens));
      }
    }
  }
}

TEST(CudaCosine, AsManyInputsAsItSays) {
  const int32_t most = most_cosine_inputs(shared_of_a_block());
  EXPECT_GT(most, 16384);
  RouterConfig config;
  config.kind = RouterKind::kCosine;
  const PackedMatrix embedding = random_matrix(kTableKinds[0], 3, most, 9);
  const std::vector<float> z = random_floats(static_cast<size_t>(most), 8);
  const DeviceMatrix device_embedding(embedding);
  const OnDevice<float> device_z(z), scores(3);
  CosineOp op;
  op.config = config;
  op.projected = device_z;
  op.embedding = device_embedding;
  op.n_tokens = 1;
  op.scores = scores;
  ASSERT_EQ(cosine_scores(nullptr, op), cudaSuccess);
  EXPECT_SAME_BITS(scores.values(), host_cosines(config, embedding, z, 1));
}

}  // namespace
}  // namespace moe::cuda
