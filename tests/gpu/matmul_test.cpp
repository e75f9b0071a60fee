// SPDX-License-Identifier: MIT
// The matrix products of kernels/cuda have the bits of their definition.

#include <cmath>

#include "tests/gpu/product_case.h"
#include "tests/support/every_isa.h"
#include "tests/support/weight_codes.h"

namespace moe {
namespace {

using cuda::ProductKernels;
const std::vector<ProductKernels> kFamilies = {ProductKernels::kAny, ProductKernels::kFewRows,
                                               ProductKernels::kManyRows,
                                               ProductKernels::kManyRowsWide};

// The families with kernels of their own for a kind; the others are names of the first.
std::vector<ProductKernels> families_of(const WeightKind& kind) {
  Matrix m;
  m.format = kind.format;
  m.act = kind.act;
  if (!cuda::has_mma_kernels(m) && kind.act != ActPrecision::kF32) return {ProductKernels::kAny};
  return kFamilies;
}

TEST(CudaMatmul, CodesHaveTheirOwnKernels) {
  for (const WeightKind& kind : all_weight_kinds()) {
    Matrix m;
    m.format = kind.format;
    m.act = kind.act;
    const bool codes = format_info(kind.format).integer && kind.act != ActPrecision::kF32;
    const bool few_bits = kind.format == FormatId::kTernary3 || kind.format == FormatId::kInt2K ||
                          kind.format == FormatId::kInt3K || kind.format == FormatId::kTcq2 ||
                          kind.format == FormatId::kTcq3 || format_info(kind.format).only_blocks();
    EXPECT_EQ(cuda::has_mma_kernels(m), codes && !few_bits) << describe(kind);
  }
}

TEST(CudaMatmul, EveryKindMatchesItsDefinition) {
  std::mt19937 rng(1);
  for (const WeightKind& kind : all_weight_kinds()) {
    const TestMatrix m(kind, 40, 300, rng, false);
    const TestInput input(9, 300, rng);
    for (const int32_t n : {1, 3, 9}) {
      expect_dense({&m}, input, n, families_of(kind));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CudaMatmul, RaggedShapes) {
  std::mt19937 rng(2);
  for (const WeightKind& kind : all_weight_kinds()) {
    for (const int32_t cols : {1, 5, 16, 21, 64, 127, 129, 257, 640}) {
      const int32_t rows = cols % 3 == 0 ? 1 : 17 + cols % 31;
      const TestMatrix m(kind, rows, cols, rng, true);
      const TestInput input(2, cols, rng);
      expect_dense({&m}, input, 1 + cols % 2, families_of(kind));
      if (HasFatalFailure()) return;
    }
  }
}

// More rows than one chunk of every kernel, and several tiles.
TEST(CudaMatmul, ManyRows) {
  std::mt19937 rng(3);
  for (const WeightKind& kind : kinds_by_kernel()) {
    if (kind.format == FormatId::kTernary3) continue;
    const TestMatrix m(kind, 150, 200, rng, false, 1);
    const TestInput input(140, 200, rng);
    if (families_of(kind).size() == 1) {
      expect_dense({&m}, input, 140, {ProductKernels::kAny});
      continue;
    }
    if (kind.act != ActPrecision::kF32) {
      for (const int32_t n : {9, 17, 33}) expect_dense({&m}, input, n, {ProductKernels::kFewRows});
    }
    for (const int32_t n : {33, 65}) expect_dense({&m}, input, n, {ProductKernels::kManyRows});
    expect_dense({&m}, input, 140, {ProductKernels::kManyRows, ProductKernels::kManyRowsWide});
    if (HasFatalFailure()) return;
  }
}

// More inputs than a block of warps processes in one iteration.
TEST(CudaMatmul, ManyInputs) {
  std::mt19937 rng(4);
  for (const WeightKind& kind : kinds_by_kernel()) {
    const TestMatrix m(kind, 18, 9000, rng, false, 1);
    const TestInput input(2, 9000, rng);
    expect_dense({&m}, input, 2, families_of(kind));
    if (HasFatalFailure()) return;
  }
}

TEST(CudaMatmul, BiasScaleAndAccumulate) {
  std::mt19937 rng(5);
  for (const WeightKind& kind : all_weight_kinds()) {
    const TestInput input(3, 100, rng);
    for (const bool bias : {false, true}) {
      const TestMatrix m(kind, 21, 100, rng, bias);
      expect_dense({&m}, input, 3, families_of(kind), {true, bias ? 0.37f : 1.0f});
      expect_dense({&m}, input, 3, families_of(kind), {false, 0.37f});
      if (HasFatalFailure()) return;
    }
  }
}

// Up to three matrices on one input, of the same kind and of different kinds.
TEST(CudaMatmul, SeveralOutputs) {
  std::mt19937 rng(6);
  const std::vector<WeightKind> kinds = kinds_by_kernel();
  const TestInput input(10, 260, rng);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const TestMatrix q(kinds[i], 70, 260, rng, true);
    const TestMatrix k(kinds[i], 33, 260, rng, false);
    const TestMatrix v(kinds[i], 16, 260, rng, true);
    const TestMatrix other(kinds[(i + 5) % kinds.size()], 48, 260, rng, false);
    expect_dense({&q, &k, &v}, input, i % 2 == 0 ? 10 : 1, kFamilies);
    expect_dense({&k, &other, &v}, input, 2, kFamilies);
    if (HasFatalFailure()) return;
  }
}

// More tiles, and more pairs of tiles, than a grid has blocks along y.
TEST(CudaMatmul, MoreTilesThanAGridCounts) {
  std::mt19937 rng(13);
  const TestInput input(1, 1, rng);
  const TestMatrix m({FormatId::kInt8, ScaleKind::kTensor, 0, ActPrecision::kA8},
                     cuda::kMostGridY * kTileRows + 1, 1, rng, false, 1);
  expect_dense({&m, &m}, input, 1, {ProductKernels::kFewRows});
}

TEST(CudaMatmul, NoRowsIsNothing) {
  std::mt19937 rng(7);
  for (const WeightKind& kind : all_weight_kinds()) {
    const TestMatrix m(kind, 16, 64, rng, false);
    const TestInput input(0, 64, rng);
    expect_dense({&m}, input, 0, families_of(kind));
  }
}

// A number of rows that is only known on the device, smaller than the host's upper bound.
TEST(CudaMatmul, CountedRows) {
  std::mt19937 rng(8);
  for (const WeightKind& kind : all_weight_kinds()) {
    const TestMatrix m(kind, 20, 130, rng, false);
    const TestInput input(12, 130, rng);
    for (const int32_t n : {0, 1, 9, 12}) {
      std::vector<float> want;
      for (int32_t i = 0; i < n; ++i) {
        const std::vector<float> row = m.times(input.row(i));
        want.insert(want.end(), row.begin(), row.end());
      }
      want.resize(12 * 20, kUntouched);
      for (const ProductKernels family : families_of(kind)) {
        const DeviceArray<int32_t> counted(std::vector<int32_t>{n});
        const DeviceArray<float> y(std::vector<float>(12 * 20, kUntouched));
        cuda::MatmulOp op;
        op.rows.rows = {12, counted.data()};
        op.in = input.on_device();
        op.n_outs = 1;
        op.outs[0].weight = m.on_device();
        op.outs[0].y = y.data();
        op.outs[0].ld_y = 20;
        ASSERT_EQ(cuda::matmul_with(nullptr, op, family), cudaSuccess);
        ASSERT_TRUE(same_bits(y.values(), want)) << describe(kind);
      }
    }
  }
}

// The largest possible sums: every product has the same sign.
TEST(CudaMatmul, LargestSumsDoNotWrapOrSaturate) {
  for (const WeightKind& kind : kinds_by_kernel()) {
    if (kind.act == ActPrecision::kF32) continue;
    if (format_info(kind.format).only_blocks()) continue;  // their codes cannot be chosen
    for (const int sign : {-1, 1}) {
      const int code = extreme_weight_code(format_info(kind.format), sign);
      for (const int32_t cols : {255, 4096, 65536}) {
        if (cols == 65536 && (sign == 1 || kind.act != ActPrecision::kA8)) continue;  // slow
        const TestMatrix m(kind, 2, cols, code);
        for (const float value : {1.0f, -1.0f}) {
          if (cols > 255 && value > 0) continue;  // codes of both signs give sums of both signs
          const TestInput input(std::vector<float>(at(cols), value), 1, cols);
          expect_dense({&m}, input, 1, families_of(kind));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// With float activations only the order of summation differs from the CPU's.
TEST(CudaMatmul, FloatsAreCloseToTheCpu) {
  std::mt19937 rng(9);
  for (const WeightKind& kind : all_weight_kinds()) {
    if (kind.act != ActPrecision::kF32) continue;
    const TestMatrix m(kind, 33, 700, rng, true);
    const TestInput input(2, 700, rng);
    for (int32_t i = 0; i < 2; ++i) {
      std::vector<float> bound;
      const std::vector<float> cpu = m.times_as_cpu(input.row(i), &bound);
      const std::vector<float> gpu = m.times(input.row(i));  // has the GPU's bits (the tests above)
      for (size_t r = 0; r < cpu.size(); ++r) ASSERT_NEAR(gpu[r], cpu[r], bound[r]);
    }
  }
}

TEST(CudaMatmul, NonFiniteInputsGiveNan) {
  std::mt19937 rng(10);
  for (const WeightKind& kind : all_weight_kinds()) {
    if (kind.act == ActPrecision::kF32) continue;
    std::vector<float> x(3 * 300, 0.5f);
    x[300 + 299] = INFINITY;
    const TestInput input(x, 3, 300);
    const TestMatrix m(kind, 16, 300, rng, false, 1);
    for (const ProductKernels family : families_of(kind)) {
      const DeviceArray<float> y(48);
      cuda::MatmulOp op;
      op.rows.rows.n = 3;
      op.in = input.on_device();
      op.n_outs = 1;
      op.outs[0].weight = m.on_device();
      op.outs[0].y = y.data();
      op.outs[0].ld_y = 16;
      ASSERT_EQ(cuda::matmul_with(nullptr, op, family), cudaSuccess);
      const std::vector<float> got = y.values();
      for (size_t i = 0; i < 48; ++i) EXPECT_EQ(std::isnan(got[i]), i / 16 == 1);
    }
  }
}

// --- Experts ---

struct Experts {
  std::vector<TestMatrix> matrices;
  DeviceArray<cuda::Weight> table;
  cuda::MatmulOut out;  // weight and table

  Experts(const WeightKind& kind, int n, int32_t rows, int32_t cols, std::mt19937& rng, bool bias) {
    std::vector<cuda::Weight> weights;
    for (int i = 0; i < n; ++i) {
      matrices.emplace_back(kind, rows, cols, rng, bias);
      weights.push_back(matrices.back().on_device());
    }
    table = DeviceArray<cuda::Weight>(weights);
    out.weight.matrix = matrices[0].matrix();
    out.weight.matrix.tiles = nullptr;
    out.weight.matrix.scales = nullptr;
    out.table = table.data();
  }
};

struct GroupShape {
  std::vector<int32_t> sizes;
  std::vector<int32_t> matrices;
  int32_t max_groups;
};
const GroupShape kGroupShapes[] = {
    {{1, 1, 1}, {0, 3, 4}, 3},
    {{2, 9, 1, 17}, {1, 2, 3, 4}, 5},
    {{}, {}, 5},
    {{35}, {2}, 4},
};

// The expected rows of all groups, in order.
std::vector<float> products(const Experts& experts, const TestGroups& groups,
                            const TestInput& input) {
  std::vector<float> all;
  for (int32_t i = 0; i < groups.n_rows(); ++i) {
    const std::vector<float> row =
        experts.matrices[at(groups.matrix_of(i))].times(input.row(groups.input_of(i)));
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST(CudaMatmul, GroupsMeetTheirMatrices) {
  std::mt19937 rng(11);
  for (const WeightKind& kind : kinds_by_kernel()) {
    const Experts experts(kind, 5, 40, 150, rng, true);
    const TestInput input(6, 150, rng);
    for (const GroupShape& shape : kGroupShapes) {
      const TestGroups groups(shape.sizes, shape.matrices, shape.max_groups, 6, rng);
      const int32_t room = groups.n_rows() + 2;  // the host knows only an upper bound
      std::vector<float> want = products(experts, groups, input);
      want.resize(at(room) * 40, kUntouched);
      for (const ProductKernels family : families_of(kind)) {
        const DeviceArray<float> y(std::vector<float>(at(room) * 40, kUntouched));
        cuda::MatmulOp op;
        op.rows = groups.on_device();
        op.rows.rows.n = room;
        op.in = input.on_device();
        op.n_outs = 1;
        op.outs[0] = experts.out;
        op.outs[0].y = y.data();
        op.outs[0].ld_y = 40;
        ASSERT_EQ(cuda::matmul_with(nullptr, op, family), cudaSuccess);
        ASSERT_TRUE(same_bits(y.values(), want))
            << describe(kind) << " family " << static_cast<int>(family);
      }
    }
  }
}

// Every row finds its group, for any number of groups.
TEST(CudaMatmul, ManyGroups) {
  std::mt19937 rng(12);
  const WeightKind kind{FormatId::kTernary2, ScaleKind::kTensor, 0, ActPrecision::kA8};
  const int n = 300;
  const Experts experts(kind, n, 3, 20, rng, false);
  const TestInput input(6, 20, rng);
  for (const int n_groups : {31, 32, 33, 299}) {
    std::vector<int32_t> sizes, matrices;
    for (int32_t g = 0; g < n_groups; ++g) {
      sizes.push_back(static_cast<int32_t>(rng() % 3) * static_cast<int32_t>(rng() % 6));
      matrices.push_back(g + (g > 200 ? 1 : 0));
    }
    const TestGroups groups(sizes, matrices, n, 6, rng);
    const std::vector<float> want = products(experts, groups, input);
    for (const ProductKernels family : kFamilies) {
      const DeviceArray<float> y(std::vector<float>(at(groups.n_rows()) * 3, kUntouched));
      cuda::MatmulOp op;
      op.rows = groups.on_device();
      op.in = input.on_device();
      op.n_outs = 1;
      op.outs[0] = experts.out;
      op.outs[0].y = y.data();
      op.outs[0].ld_y = 3;
      ASSERT_EQ(cuda::matmul_with(nullptr, op, family), cudaSuccess);
      ASSERT_TRUE(same_bits(y.values(), want)) << n_groups << " groups";
    }
  }
}

// --- Gate and up ---

struct Hidden {
  std::vector<float> values;
  uint64_t n_positive = 0;
};

// The CPU's activation applied to products by definition.
Hidden hidden_by_cpu(const ActivationConfig& act, const TestMatrix* gate, const TestMatrix& up,
                     const float* x) {
  static const CpuKernels& kernels = *every_isa()[0];
  const std::vector<float> u = up.times(x);
  const std::vector<float> g = gate != nullptr ? gate->times(x) : u;
  Hidden h;
  h.values.resize(u.size());
  h.n_positive = kernels.activation(act, gate != nullptr ? g.data() : nullptr, u.data(),
                                    static_cast<int>(u.size()), h.values.data());
  return h;
}

constexpr Activation kActivations[] = {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kSilu, Activation::kRelu2};

// Compares every kernel family with the definition, on random matrices.
void expect_gated(const WeightKind& kind_of_gate, const WeightKind& kind, bool with_gate,
                  const ActivationConfig& act, int32_t n, std::mt19937& rng) {
  const TestMatrix gate(kind_of_gate, 37, 150, rng, n % 2 == 0);
  const TestMatrix up(kind, 37, 150, rng, n % 2 == 1);
  const TestInput input(n, 150, rng);
  std::vector<float> want;
  uint64_t n_positive = 100;
  for (int32_t i = 0; i < n; ++i) {
    const Hidden h = hidden_by_cpu(act, with_gate ? &gate : nullptr, up, input.row(i));
    want.insert(want.end(), h.values.begin(), h.values.end());
    want.insert(want.end(), 3, kUntouched);
    n_positive += h.n_positive;
  }
  for (const ProductKernels family :
       kind_of_gate.format == kind.format ? families_of(kind) : kFamilies) {
    const DeviceArray<float> y(std::vector<float>(at(n) * 40, kUntouched));
    const DeviceArray<uint64_t> positive(std::vector<uint64_t>{100});
    cuda::GatedOp op;
    op.rows.rows.n = n;
    op.in = input.on_device();
    if (with_gate) op.gate.weight = gate.on_device();
    op.up.weight = up.on_device();
    op.act = act;
    op.hidden = y.data();
    op.ld_hidden = 40;
    op.n_positive = n == 3 ? nullptr : positive.data();
    ASSERT_EQ(cuda::gated_matmul_with(nullptr, op, family), cudaSuccess);
    ASSERT_TRUE(same_bits(y.values(), want))
        << describe(kind) << " n " << n << " activation " << static_cast<int>(act.kind) << " gate "
        << with_gate << " family " << static_cast<int>(family);
    ASSERT_EQ(positive.values()[0], n == 3 ? 100 : n_positive);
  }
}

TEST(CudaGatedMatmul, EveryKindMatchesItsDefinition) {
  std::mt19937 rng(13);
  for (const WeightKind& kind : all_weight_kinds()) {
    for (const bool gate : {false, true}) {
      for (const int32_t n : {1, 3, 10}) expect_gated(kind, kind, gate, {}, n, rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CudaGatedMatmul, ActivationsMatchTheCpu) {
  std::mt19937 rng(14);
  for (const Activation kind : kActivations) {
    for (const FormatId format : {FormatId::kTernary2, FormatId::kInt8, FormatId::kTernary3}) {
      for (const bool gate : {false, true}) {
        const WeightKind w{format, ScaleKind::kRow, 0, ActPrecision::kA8};
        expect_gated(w, w, gate, {kind, 1.702f, 0, 0}, 2, rng);
        expect_gated(w, w, gate, {kind, 1, 0.7f, 1}, 2, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Gate and up may have different formats.
TEST(CudaGatedMatmul, MixedKinds) {
  std::mt19937 rng(15);
  const std::vector<WeightKind> kinds = kinds_by_kernel();
  for (size_t i = 0; i < kinds.size(); ++i) {
    expect_gated(kinds[i], kinds[(i + 7) % kinds.size()], true, {}, 5, rng);
    if (HasFatalFailure()) return;
  }
}

TEST(CudaGatedMatmul, GroupsMeetTheirMatrices) {
  std::mt19937 rng(16);
  for (const WeightKind& kind : kinds_by_kernel()) {
    const Experts gates(kind, 5, 24, 100, rng, true);
    const Experts ups(kind, 5, 24, 100, rng, false);
    const TestInput input(6, 100, rng);
    for (const GroupShape& shape : kGroupShapes) {
      const TestGroups groups(shape.sizes, shape.matrices, shape.max_groups, 6, rng);
      std::vector<float> want;
      for (int32_t i = 0; i < groups.n_rows(); ++i) {
        const size_t expert = at(groups.matrix_of(i));
        const Hidden h = hidden_by_cpu({}, &gates.matrices[expert], ups.matrices[expert],
                                       input.row(groups.input_of(i)));
        want.insert(want.end(), h.values.begin(), h.values.end());
      }
      for (const ProductKernels family : families_of(kind)) {
        const DeviceArray<float> y(std::vector<float>(at(groups.n_rows()) * 24, kUntouched));
        cuda::GatedOp op;
        op.rows = groups.on_device();
        op.in = input.on_device();
        op.gate = gates.out;
        op.up = ups.out;
        op.hidden = y.data();
        op.ld_hidden = 24;
        ASSERT_EQ(cuda::gated_matmul_with(nullptr, op, family), cudaSuccess);
        ASSERT_TRUE(same_bits(y.values(), want))
            << describe(kind) << " family " << static_cast<int>(family);
      }
    }
  }
}

}  // namespace
}  // namespace moe
