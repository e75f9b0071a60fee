// Products by cuBLASLt: the same bits as the other families; and what happens without it, or when
// it fails. On the emulator a fake library is opened, on a GPU the real one.

#include "kernels/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <cmath>
#include <cstring>

#include "tests/gpu/product_case.h"
#if defined(MOE_CUDA_EMULATOR)
#include "tests/gpu/fake_cublas_lt.h"
#include "tests/gpu/gpu_machine.h"
#endif

namespace moe {
namespace {

using cuda::ProductKernels;
using cuda::ProductLibraryOptions;

size_t at(int64_t i) { return static_cast<size_t>(i); }
constexpr float kUntouched = -12345.5f;

#if defined(MOE_CUDA_EMULATOR)
constexpr const char* kWhole[] = {MOE_FAKE_CUBLAS_LT, nullptr};

FakeCublasLt& fake() {
  void* file = dlopen(MOE_FAKE_CUBLAS_LT, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(file, nullptr) << dlerror();
  return *reinterpret_cast<FakeCublasLtEntry>(dlsym(file, kFakeCublasLtEntry))();
}
int matmuls() { return fake().matmuls; }
#endif

/// A library with little scratch: at most 32 weight rows of 512 inputs, and their sums for 64 rows.
ProductLibraryOptions small_options() {
  ProductLibraryOptions o;
#if defined(MOE_CUDA_EMULATOR)
  o.names = kWhole;
#endif
  o.weight_bytes = 32 * 512;
  o.sum_bytes = 32 * 64 * 4;
  o.workspace_bytes = 8192;
  return o;
}
ProductLibraryOptions roomy_options() {
  ProductLibraryOptions o = small_options();
  o.weight_bytes = size_t{4} << 20;
  o.sum_bytes = size_t{1} << 20;
  return o;
}

/// A GPU's memory and its library.
struct Gpu {
  explicit Gpu(const ProductLibraryOptions& options = small_options(),
               uint64_t limit = uint64_t{1} << 30)
      : library(memory, options) {
    memory.set_limit(limit);
  }
  cuda::GpuMemory memory;
  cuda::CublasLt library;
};

class CublasLt : public testing::Test {
 protected:
  void SetUp() override {
#if defined(MOE_CUDA_EMULATOR)
    fake() = {};
#else
    cuda::lt::Library library;
    if (!library.open(cuda::kCublasLtNames)) GTEST_SKIP() << "no cuBLASLt here";
#endif
  }
  void TearDown() override {
#if defined(MOE_CUDA_EMULATOR)
    EXPECT_EQ(fake().contexts, 0);
    EXPECT_EQ(fake().objects, 0);
    EXPECT_STREQ(fake().refused, "");
#endif
  }
};

struct After {
  bool accumulate = false;
  float scale = 1;
};

/// What every row of the input gives with every matrix; `status`: what the product answers.
void expect_dense(Gpu& gpu, const std::vector<const TestMatrix*>& matrices, const TestInput& input,
                  int32_t n, After after = {}, ProductKernels family = ProductKernels::kLibrary,
                  cudaStream_t stream = nullptr) {
  cuda::MatmulOp op;
  op.rows.rows.n = n;
  op.in = input.on_device();
  op.library = &gpu.library;
  std::vector<DeviceArray<float>> ys;
  for (const TestMatrix* m : matrices) {
    const int64_t ld = m->matrix().rows + 3;
    ys.emplace_back(std::vector<float>(at(n * ld), kUntouched));
    cuda::MatmulOut& out = op.outs[op.n_outs++];
    out.weight = m->on_device();
    out.y = ys.back().data();
    out.ld_y = ld;
    out.accumulate = after.accumulate;
    out.scale = after.scale;
  }
  ASSERT_EQ(cuda::matmul_with(stream, op, family), cudaSuccess);
  for (size_t o = 0; o < matrices.size(); ++o) {
    const std::vector<float> got = ys[o].values();
    const Matrix& m = matrices[o]->matrix();
    const auto ld = at(m.rows) + 3;
    for (int32_t i = 0; i < n; ++i) {
      const std::vector<float> row = matrices[o]->times(input.row(i));
      for (size_t r = 0; r < ld; ++r) {
        float want = kUntouched;
        if (r < row.size()) {
          want =
              after.accumulate ? std::fma(after.scale, row[r], kUntouched) : after.scale * row[r];
        }
        const float found = got[at(i) * ld + r];
        ASSERT_EQ(std::memcmp(&found, &want, 4), 0)
            << describe({m.format, m.scale_kind, m.group, m.act}) << " (" << m.rows << ", "
            << m.cols << ") n " << n << ": row " << i << ", output " << r << ": " << found
            << ", by definition " << want;
      }
    }
  }
}

/// What cuBLASLt can do.
std::vector<WeightKind> library_kinds() {
  std::vector<WeightKind> kinds;
  for (const WeightKind& k : all_weight_kinds()) {
    if (k.act == ActPrecision::kA8 && k.scale != ScaleKind::kGroup &&
        k.format != FormatId::kTernary3) {
      kinds.push_back(k);
    }
  }
  return kinds;
}

TEST_F(CublasLt, RaggedShapes) {
  std::mt19937 rng(21);
  Gpu gpu;
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
    Gpu gpu(options);
    const std::vector<WeightKind> kinds = library_kinds();
    const int32_t cols = below(512);
    const TestMatrix m(kinds[rng() % kinds.size()], below(200), cols, rng, rng() % 2 == 0,
                       below(2));
    const int32_t n = below(200);
    expect_dense(gpu, {&m}, TestInput(n, cols, rng), n, {rng() % 2 == 0, 0.37f});
    if (HasFatalFailure()) return;
  }
}

// The largest sums there are.
TEST_F(CublasLt, LargestSums) {
  for (const WeightKind& kind : library_kinds()) {
    if (kind.scale == ScaleKind::kTensor) continue;
    for (const int sign : {-1, 1}) {
      const int code = sign * (kind.format == FormatId::kInt8 ? 127 : 1);
      Gpu gpu(roomy_options());
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
  Gpu gpu;
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
  Gpu gpu;
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

// Some of them the library's, some not.
TEST_F(CublasLt, SeveralOutputs) {
  std::mt19937 rng(25);
  Gpu gpu;
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

// Several activation scales a row, groups of weights, other formats.
TEST_F(CublasLt, LeavesOtherKindsToOwnKernels) {
  std::mt19937 rng(26);
  Gpu gpu;
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

constexpr WeightKind kInt8Rows{FormatId::kInt8, ScaleKind::kRow, 0, ActPrecision::kA8};

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
    Gpu gpu(options);
    const TestMatrix m(kInt8Rows, c.rows, c.cols, rng, false);
    const int before = matmuls();
    expect_dense(gpu, {&m}, TestInput(c.n, c.cols, rng), c.n, {}, ProductKernels::kAuto);
    EXPECT_EQ(matmuls() > before, c.taken) << c.n << " " << c.rows << " " << c.cols;
  }
  // Other families are what they are asked for.
  Gpu gpu(options);
  const TestMatrix m(kInt8Rows, 32, 100, rng, false);
  const int before = matmuls();
  expect_dense(gpu, {&m}, TestInput(20, 100, rng), 20, {}, ProductKernels::kManyRows);
  EXPECT_EQ(matmuls(), before);
}

// Rows of groups, or rows that the device counts, are no dense product.
TEST_F(CublasLt, LeavesGroupsAlone) {
  std::mt19937 rng(28);
  Gpu gpu;
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
  Gpu gpu;
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
  Gpu gpu;
  const TestMatrix m(kInt8Rows, 33, 200, rng, false);
  const TestInput input(40, 200, rng);
  expect_dense(gpu, {&m}, input, 40);
  const int asked = fake().heuristics;
  EXPECT_GT(asked, 0);
  expect_dense(gpu, {&m}, input, 40);
  EXPECT_EQ(fake().heuristics, asked);
  for (int32_t n = 1; n <= 40; ++n) expect_dense(gpu, {&m}, input, n);  // more than are kept
}

// --- Without it, or when it fails ---

/// Products come out right, and the library multiplies none of them.
void expect_own_kernels(Gpu& gpu) {
  std::mt19937 rng(31);
  const TestMatrix m(kInt8Rows, 50, 200, rng, true);
  const TestInput input(70, 200, rng);
  const int before = matmuls();
  expect_dense(gpu, {&m}, input, 70);
  expect_dense(gpu, {&m}, input, 70, {true, 0.5f});
  EXPECT_EQ(matmuls(), before);
}

TEST_F(CublasLt, Absent) {
  const char* const names[] = {"libcublasLt-of-nowhere.so.13", nullptr};
  ProductLibraryOptions options = small_options();
  options.names = names;
  Gpu gpu(options);
  expect_own_kernels(gpu);
}

TEST_F(CublasLt, TheNextNameIsTried) {
  const char* const names[] = {"libcublasLt-of-nowhere.so.13", MOE_FAKE_CUBLAS_LT_INCOMPLETE,
                               MOE_FAKE_CUBLAS_LT, nullptr};
  ProductLibraryOptions options = small_options();
  options.names = names;
  Gpu gpu(options);
  std::mt19937 rng(32);
  const TestMatrix m(kInt8Rows, 50, 200, rng, true);
  expect_dense(gpu, {&m}, TestInput(70, 200, rng), 70);
  EXPECT_GT(matmuls(), 0);
}

TEST_F(CublasLt, AFunctionIsMissing) {
  const char* const names[] = {MOE_FAKE_CUBLAS_LT_INCOMPLETE, nullptr};
  ProductLibraryOptions options = small_options();
  options.names = names;
  Gpu gpu(options);
  expect_own_kernels(gpu);
}

TEST_F(CublasLt, DoesNotStart) {
  fake().cannot_start = true;
  Gpu gpu;
  expect_own_kernels(gpu);
}

TEST_F(CublasLt, NoAlgorithm) {
  fake().no_algorithm = true;
  Gpu gpu;
  expect_own_kernels(gpu);
}

TEST_F(CublasLt, FirstProductFails) {
  fake().matmuls_until_failure = 0;
  Gpu gpu;
  expect_own_kernels(gpu);
  fake().matmuls_until_failure = -1;
  expect_own_kernels(gpu);  // it is not trusted again
}

TEST_F(CublasLt, ALaterPartFails) {
  std::mt19937 rng(33);
  const TestMatrix m(kInt8Rows, 50, 200, rng, true);
  const TestInput input(70, 200, rng);
  {
    Gpu gpu;
    fake().matmuls_until_failure = 2;
    expect_dense(gpu, {&m}, input, 70);  // all of it is written anew
  }
  Gpu gpu;
  fake().matmuls_until_failure = 2;
  const DeviceArray<float> y(std::vector<float>(70 * 50, 1.0f));
  cuda::MatmulOp op;
  op.rows.rows.n = 70;
  op.in = input.on_device();
  op.library = &gpu.library;
  op.n_outs = 1;
  op.outs[0] = {m.on_device(), nullptr, y.data(), 50, true, 1};
  EXPECT_EQ(cuda::matmul_with(nullptr, op, ProductKernels::kLibrary), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Every call of CUDA on the way fails in turn.
TEST_F(CublasLt, CudaFails) {
  std::mt19937 rng(34);
  const TestMatrix m(kInt8Rows, 20, 100, rng, false);
  const TestInput input(10, 100, rng);
  bool ahead = false;
  int failed = 0;
  for (int call = 0; !ahead; ++call) {
    const DeviceArray<float> y(std::vector<float>(10 * 20));
    Gpu gpu;
    cuda::MatmulOp op;
    op.rows.rows.n = 10;
    op.in = input.on_device();
    op.library = &gpu.library;
    op.n_outs = 1;
    op.outs[0] = {m.on_device(), nullptr, y.data(), 20, false, 1};
    emulator::fail_after(call, cudaErrorIllegalAddress, true);
    const cudaError_t error = cuda::matmul_with(nullptr, op, ProductKernels::kLibrary);
    ahead = emulator::failure_ahead();
    EXPECT_EQ(error == cudaSuccess, ahead) << "call " << call;
    if (error != cudaSuccess) ++failed;
    emulator::clear_failure();
  }
  EXPECT_GE(failed, 5);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// --- Memory ---

TEST_F(CublasLt, ItsScratchDoesNotFit) {
  Gpu gpu(small_options(), 1000);
  expect_own_kernels(gpu);
  ProductLibraryOptions options = small_options();
  options.weight_bytes = 1000;  // no room for 16 rows
  Gpu no_panel(options);
  expect_own_kernels(no_panel);
}

TEST_F(CublasLt, ItsScratchMakesRoom) {
  std::mt19937 rng(35);
  const TestMatrix m(kInt8Rows, 50, 200, rng, true);
  const TestInput input(70, 200, rng);
  const size_t before = emulator::bytes_in_use();
  Gpu gpu(small_options(), 100000);
  expect_dense(gpu, {&m}, input, 70);
  EXPECT_GT(matmuls(), 0);
  EXPECT_GT(emulator::bytes_in_use(), before);
  void* memory = nullptr;
  ASSERT_TRUE(gpu.memory.alloc(90000, &memory).ok());
  EXPECT_EQ(emulator::bytes_in_use(), before + 90000);
  expect_own_kernels(gpu);
  gpu.memory.free(memory, 90000);
}

// --- Whole models ---

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

  // Steps of many sessions: as they are at first, then captured and replayed without it.
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
      const Status s = sessions_step({together[k], kSessions}, span(next), logits[k].data());
      ASSERT_TRUE(s.ok()) << s.text();
    }
    EXPECT_EQ(logits[1], logits[0]) << "step " << step;
    if (step == 0) at_first = matmuls();
  }
  EXPECT_GT(at_first, multiplied);
  EXPECT_EQ(matmuls(), at_first);
}

// --- The fake itself ---

TEST(FakeCublasLt, RefusesWhatCublasLtDoesNotSupport) {
  fake() = {};
  void* file = dlopen(MOE_FAKE_CUBLAS_LT, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(file, nullptr);
  const auto function = [&](const char* name) { return dlsym(file, name); };
  using Create = int (*)(void**);
  using CreateDesc = int (*)(void**, int, int);
  using CreateLayout = int (*)(void**, int, uint64_t, uint64_t, int64_t);
  using Set = int (*)(void*, int, const void*, size_t);
  using Destroy = int (*)(void*);
  using Find = int (*)(void*, void*, void*, void*, void*, void*, void*, int, void*, int*);
  struct Case {
    int compute = 72, scale = 10;
    int32_t trans_a = 1, trans_b = 0;
    int type_a = 3, type_d = 10;
    uint64_t m = 8, n = 5, k = 16;
    int64_t ld_a = 16, ld_b = 16, ld_d = 8;
  };
  const auto ask = [&](const Case& c) {
    void *context, *desc, *a, *b, *d, *preference;
    reinterpret_cast<Create>(function("cublasLtCreate"))(&context);
    reinterpret_cast<CreateDesc>(function("cublasLtMatmulDescCreate"))(&desc, c.compute, c.scale);
    const auto set = reinterpret_cast<Set>(function("cublasLtMatmulDescSetAttribute"));
    set(desc, 3, &c.trans_a, 4);
    set(desc, 4, &c.trans_b, 4);
    const auto layout = reinterpret_cast<CreateLayout>(function("cublasLtMatrixLayoutCreate"));
    const bool turned = c.trans_a == 1;
    layout(&a, c.type_a, turned ? c.k : c.m, turned ? c.m : c.k, c.ld_a);
    layout(&b, 3, c.k, c.n, c.ld_b);
    layout(&d, c.type_d, c.m, c.n, c.ld_d);
    reinterpret_cast<Create>(function("cublasLtMatmulPreferenceCreate"))(&preference);
    uint64_t result[16];
    int found = 0;
    const int status = reinterpret_cast<Find>(function("cublasLtMatmulAlgoGetHeuristic"))(
        context, desc, a, b, d, d, preference, 1, result, &found);
    EXPECT_EQ(found, status == 0 ? 1 : 0);
    reinterpret_cast<Destroy>(function("cublasLtMatmulPreferenceDestroy"))(preference);
    for (void* l : {a, b, d}) {
      reinterpret_cast<Destroy>(function("cublasLtMatrixLayoutDestroy"))(l);
    }
    reinterpret_cast<Destroy>(function("cublasLtMatmulDescDestroy"))(desc);
    reinterpret_cast<Destroy>(function("cublasLtDestroy"))(context);
    return status;
  };
  const auto with = [](auto change) {
    Case c;
    change(c);
    return c;
  };
  EXPECT_EQ(ask({}), 0);
  EXPECT_EQ(ask(with([](Case& c) { c.ld_a = 20, c.ld_b = 128, c.ld_d = 12, c.n = 1; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.compute = 68; })), 0);  // float sums
  EXPECT_NE(ask(with([](Case& c) { c.scale = 0; })), 0);     // float alpha
  EXPECT_NE(ask(with([](Case& c) { c.trans_a = 0; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.trans_b = 1; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.type_a = 8; })), 0);  // unsigned
  EXPECT_NE(ask(with([](Case& c) { c.type_d = 0; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.m = 6; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.k = 14; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.ld_a = 18; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.ld_b = 12; })), 0);
  EXPECT_NE(ask(with([](Case& c) { c.ld_d = 9; })), 0);
  EXPECT_EQ(fake().objects, 0);
}

#endif  // MOE_CUDA_EMULATOR

}  // namespace
}  // namespace moe
