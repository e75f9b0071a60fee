// SPDX-License-Identifier: MIT
// Products computed by cuBLASLt have the same bits as those of the other kernel families.

#include <cmath>

#include "tests/gpu/cublas_lt_case.h"
#if defined(MOE_CUDA_EMULATOR)
#include "tests/gpu/gpu_machine.h"
#endif

namespace moe {
namespace {

using cuda::ProductKernels;
using cuda::ProductLibraryOptions;

TEST_F(CublasLt, RaggedShapes) {
  std::mt19937 rng(21);
  GpuLibrary gpu;
  for (const WeightKind& kind : library_kinds()) {
    for (const int32_t cols : {1, 5, 16, 21, 64, 127, 129, 257, 512}) {
      for (const int32_t rows : {1, 16, 33, 70}) {
        const TestMatrix m(kind, rows, cols, rng, cols % 2 == 0);
        const int32_t n = 1 + (cols * rows) % 90;
        const TestInput input(n, cols, rng);
        expect_dense(gpu, {&m}, input, n);
        if (HasFatalFailure()) return;
      }
    }
  }
#if defined(MOE_CUDA_EMULATOR)
  EXPECT_GT(matmuls(), static_cast<int>(library_kinds().size() * 9 * 4));
#endif
}

TEST_F(CublasLt, RandomShapes) {
  std::mt19937 rng(22);
  const auto below = [&](uint32_t n) { return 1 + static_cast<int32_t>(rng() % n); };
  for (int i = 0; i < 40; ++i) {
    ProductLibraryOptions options = small_options();
    options.weight_bytes = at(16 * below(6)) * 512;
    options.sum_bytes = at(64 * 16 * below(40)) * 4 * 6;
    GpuLibrary gpu(options);
    const std::vector<WeightKind> kinds = library_kinds();
    const int32_t cols = below(512);
    const TestMatrix m(kinds[rng() % kinds.size()], below(200), cols, rng, rng() % 2 == 0,
                       below(2));
    const int32_t n = below(200);
    expect_dense(gpu, {&m}, TestInput(n, cols, rng), n, {rng() % 2 == 0, 0.37f});
    if (HasFatalFailure()) return;
  }
}

// The largest possible sums.
TEST_F(CublasLt, LargestSums) {
  for (const WeightKind& kind : library_kinds()) {
    if (kind.scale == ScaleKind::kTensor) continue;
    for (const int sign : {-1, 1}) {
      const int code = sign * (kind.format == FormatId::kInt8 ? 127 : 1);
      GpuLibrary gpu(roomy_options());
      const TestMatrix m(kind, 2, 65536, code);
      for (const float value : {1.0f, -1.0f}) {
        const TestInput input(std::vector<float>(65536, value), 1, 65536);
        expect_dense(gpu, {&m}, input, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CublasLt, BiasScaleAndAccumulate) {
  std::mt19937 rng(23);
  GpuLibrary gpu;
  for (const WeightKind& kind : library_kinds()) {
    const TestInput input(70, 100, rng);
    for (const bool bias : {false, true}) {
      const TestMatrix m(kind, 45, 100, rng, bias);
      expect_dense(gpu, {&m}, input, 70, {true, bias ? 0.37f : 1.0f});
      expect_dense(gpu, {&m}, input, 70, {false, 0.37f});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CublasLt, NonFiniteInputsGiveNan) {
  std::mt19937 rng(24);
  GpuLibrary gpu;
  std::vector<float> x(3 * 300, 0.5f);
  x[300 + 299] = INFINITY;
  const TestInput input(x, 3, 300);
  for (const WeightKind& kind : library_kinds()) {
    const TestMatrix m(kind, 16, 300, 1);
    const DeviceArray<float> y(48);
    cuda::MatmulOp op;
    op.rows.rows.n = 3;
    op.in = input.on_device();
    op.library = &gpu.library;
    op.n_outs = 1;
    op.outs[0].weight = m.on_device();
    op.outs[0].y = y.data();
    op.outs[0].ld_y = 16;
    ASSERT_EQ(cuda::matmul_with(nullptr, op, ProductKernels::kLibrary), cudaSuccess);
    const std::vector<float> got = y.values();
    for (size_t i = 0; i < 48; ++i) EXPECT_EQ(std::isnan(got[i]), i / 16 == 1);
  }
}

// Several outputs, of which the library computes some.
TEST_F(CublasLt, SeveralOutputs) {
  std::mt19937 rng(25);
  GpuLibrary gpu;
  const std::vector<WeightKind> kinds = all_weight_kinds();
  const TestInput input(10, 260, rng);
  for (const WeightKind& mine : library_kinds()) {
    const TestMatrix q(mine, 70, 260, rng, true);
    for (size_t i = 0; i < kinds.size(); i += 4) {
      const TestMatrix k(kinds[i], 33, 260, rng, false);
      const TestMatrix v(kinds[(i + 1) % kinds.size()], 16, 260, rng, true);
      expect_dense(gpu, {&k, &q, &v}, input, 10);
      if (HasFatalFailure()) return;
    }
  }
}

#if defined(MOE_CUDA_EMULATOR)

// Several activation scales per row, groups of weights, other formats.
TEST_F(CublasLt, LeavesOtherKindsToOwnKernels) {
  std::mt19937 rng(26);
  GpuLibrary gpu;
  for (const WeightKind& kind : all_weight_kinds()) {
    const TestMatrix m(kind, 40, 300, rng, false);
    const TestInput input(9, 300, rng);
    const int before = matmuls();
    expect_dense(gpu, {&m}, input, 9);
    if (HasFatalFailure()) return;
    bool mine = false;
    for (const WeightKind& k : library_kinds()) {
      mine = mine || (k.format == kind.format && k.scale == kind.scale && k.act == kind.act);
    }
    EXPECT_EQ(matmuls() > before, mine) << describe(kind);
  }
}

TEST_F(CublasLt, TakesOnlyLargeProducts) {
  std::mt19937 rng(27);
  ProductLibraryOptions options = small_options();
  options.rows = 20;
  options.inputs = 100;
  options.outputs = 32;
  const struct {
    int32_t n, rows, cols;
    bool taken;
  } cases[] = {
      {20, 32, 100, true}, {19, 32, 100, false}, {20, 31, 100, false}, {20, 32, 99, false}};
  for (const auto& c : cases) {
    GpuLibrary gpu(options);
    const TestMatrix m(kInt8Rows, c.rows, c.cols, rng, false);
    const int before = matmuls();
    expect_dense(gpu, {&m}, TestInput(c.n, c.cols, rng), c.n, {}, ProductKernels::kAuto);
    EXPECT_EQ(matmuls() > before, c.taken) << c.n << " " << c.rows << " " << c.cols;
  }
  // If a kernel family is given, it is used.
  GpuLibrary gpu(options);
  const TestMatrix m(kInt8Rows, 32, 100, rng, false);
  const int before = matmuls();
  expect_dense(gpu, {&m}, TestInput(20, 100, rng), 20, {}, ProductKernels::kManyRows);
  EXPECT_EQ(matmuls(), before);
}

// A product whose number of rows is only known on the device is not a dense product.
TEST_F(CublasLt, LeavesGroupsAlone) {
  std::mt19937 rng(28);
  GpuLibrary gpu;
  const TestMatrix m(kInt8Rows, 20, 130, rng, false);
  const TestInput input(12, 130, rng);
  const DeviceArray<int32_t> counted(std::vector<int32_t>{5});
  const DeviceArray<float> y(std::vector<float>(12 * 20, kUntouched));
  cuda::MatmulOp op;
  op.rows.rows = {12, counted.data()};
  op.in = input.on_device();
  op.library = &gpu.library;
  op.n_outs = 1;
  op.outs[0].weight = m.on_device();
  op.outs[0].y = y.data();
  op.outs[0].ld_y = 20;
  ASSERT_EQ(cuda::matmul_with(nullptr, op, ProductKernels::kLibrary), cudaSuccess);
  EXPECT_EQ(y.values()[5 * 20], kUntouched);
  EXPECT_NE(y.values()[5 * 20 - 1], kUntouched);
  EXPECT_EQ(matmuls(), 0);
}

TEST_F(CublasLt, OneScratchServesTwoStreams) {
  std::mt19937 rng(29);
  GpuLibrary gpu;
  cudaStream_t streams[2];
  for (cudaStream_t& s : streams) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  }
  for (int i = 0; i < 4; ++i) {
    const TestMatrix m(kInt8Rows, 50, 200, rng, false);
    expect_dense(gpu, {&m}, TestInput(70, 200, rng), 70, {}, ProductKernels::kLibrary,
                 streams[i % 2]);
  }
  for (cudaStream_t s : streams) EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

TEST_F(CublasLt, AsksForAnAlgorithmOnce) {
  std::mt19937 rng(30);
  GpuLibrary gpu;
  const TestMatrix m(kInt8Rows, 33, 200, rng, false);
  const TestInput input(40, 200, rng);
  expect_dense(gpu, {&m}, input, 40);
  const int asked = fake().heuristics;
  EXPECT_GT(asked, 0);
  expect_dense(gpu, {&m}, input, 40);
  EXPECT_EQ(fake().heuristics, asked);
  for (int32_t n = 1; n <= 40; ++n)
    expect_dense(gpu, {&m}, input, n);  // more shapes than algorithms are remembered
}

TEST_F(CublasLt, WholeModelsGiveTheSameBits) {
  const auto bytes = build_tiny_kind(plain_kind());
  cuda::CudaOptions with;
  with.library = small_options();
  with.library.rows = 8;
  with.library.inputs = with.library.outputs = 1;
  GpuMachine own(*bytes);
  GpuMachine gpu(*bytes, with);
  ASSERT_TRUE(own.status().ok()) << own.status().text();
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  SessionOptions options;
  options.chunk = 40;
  const Box<Session> expected = own.session(options);
  const Box<Session> found = gpu.session(options);
  const Tokens tokens = random_tokens(75, gpu.vocab_size());
  EXPECT_EQ(eval_all(*found, tokens), eval_all(*expected, tokens));
  const int multiplied = matmuls();
  EXPECT_GT(multiplied, 0);

  // Steps of many sessions: the first is launched directly; later ones are captured without the
  // library and replayed.
  constexpr size_t kSessions = 9;
  const auto vocab = static_cast<size_t>(gpu.vocab_size());
  Box<Session> members[2][kSessions];
  Session* together[2][kSessions];
  for (size_t i = 0; i < kSessions; ++i) {
    members[0][i] = own.session();
    members[1][i] = gpu.session();
    for (int k = 0; k < 2; ++k) together[k][i] = members[k][i].get();
  }
  int at_first = 0;
  for (uint32_t step = 0; step < 4; ++step) {
    const Tokens next = random_tokens(kSessions, gpu.vocab_size(), step);
    Floats logits[2];
    for (int k = 0; k < 2; ++k) {
      logits[k].resize(kSessions * vocab);
      const Status s =
          sessions_eval({together[k], kSessions}, next.data(), nullptr, logits[k].data());
      ASSERT_TRUE(s.ok()) << s.text();
    }
    EXPECT_EQ(logits[1], logits[0]) << "step " << step;
    if (step == 0) at_first = matmuls();
  }
  EXPECT_GT(at_first, multiplied);
  EXPECT_EQ(matmuls(), at_first);
}

#endif  // MOE_CUDA_EMULATOR

}  // namespace
}  // namespace moe
