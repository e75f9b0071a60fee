// SPDX-License-Identifier: MIT
// cuBLASLt is missing, fails or gets no memory: our own kernels compute the product.

#include "tests/gpu/cublas_lt_case.h"

namespace moe {
namespace {

using cuda::ProductKernels;
using cuda::ProductLibraryOptions;

/// Expects correct products, none of them computed by the library.
void expect_own_kernels(GpuLibrary& gpu) {
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
  GpuLibrary gpu(options);
  expect_own_kernels(gpu);
}

TEST_F(CublasLt, TheNextNameIsTried) {
  const char* const names[] = {"libcublasLt-of-nowhere.so.13", MOE_FAKE_CUBLAS_LT_INCOMPLETE,
                               MOE_FAKE_CUBLAS_LT, nullptr};
  ProductLibraryOptions options = small_options();
  options.names = names;
  GpuLibrary gpu(options);
  std::mt19937 rng(32);
  const TestMatrix m(kInt8Rows, 50, 200, rng, true);
  expect_dense(gpu, {&m}, TestInput(70, 200, rng), 70);
  EXPECT_GT(matmuls(), 0);
}

TEST_F(CublasLt, AFunctionIsMissing) {
  const char* const names[] = {MOE_FAKE_CUBLAS_LT_INCOMPLETE, nullptr};
  ProductLibraryOptions options = small_options();
  options.names = names;
  GpuLibrary gpu(options);
  expect_own_kernels(gpu);
}

TEST_F(CublasLt, DoesNotStart) {
  fake().cannot_start = true;
  GpuLibrary gpu;
  expect_own_kernels(gpu);
}

TEST_F(CublasLt, NoAlgorithm) {
  fake().no_algorithm = true;
  GpuLibrary gpu;
  expect_own_kernels(gpu);
}

TEST_F(CublasLt, FirstProductFails) {
  fake().matmuls_until_failure = 0;
  GpuLibrary gpu;
  expect_own_kernels(gpu);
  fake().matmuls_until_failure = -1;
  expect_own_kernels(gpu);  // the library is not used again
}

TEST_F(CublasLt, ALaterPartFails) {
  std::mt19937 rng(33);
  const TestMatrix m(kInt8Rows, 50, 200, rng, true);
  const TestInput input(70, 200, rng);
  {
    GpuLibrary gpu;
    fake().matmuls_until_failure = 2;
    expect_dense(gpu, {&m}, input, 70);  // the whole product is computed again
  }
  GpuLibrary gpu;
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

// Each CUDA call of a product fails in turn.
TEST_F(CublasLt, CudaFails) {
  std::mt19937 rng(34);
  const TestMatrix m(kInt8Rows, 20, 100, rng, false);
  const TestInput input(10, 100, rng);
  bool ahead = false;
  int failed = 0;
  for (int call = 0; !ahead; ++call) {
    const DeviceArray<float> y(std::vector<float>(10 * 20));
    GpuLibrary gpu;
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

TEST_F(CublasLt, ItsScratchDoesNotFit) {
  GpuLibrary gpu(small_options(), 1000);
  expect_own_kernels(gpu);
  ProductLibraryOptions options = small_options();
  options.weight_bytes = 1000;  // too small for 16 rows
  GpuLibrary no_panel(options);
  expect_own_kernels(no_panel);
}

TEST_F(CublasLt, ItsScratchMakesRoom) {
  std::mt19937 rng(35);
  const TestMatrix m(kInt8Rows, 50, 200, rng, true);
  const TestInput input(70, 200, rng);
  const size_t before = emulator::bytes_in_use();
  GpuLibrary gpu(small_options(), 100000);
  expect_dense(gpu, {&m}, input, 70);
  EXPECT_GT(matmuls(), 0);
  EXPECT_GT(emulator::bytes_in_use(), before);
  void* memory = nullptr;
  ASSERT_TRUE(gpu.memory.alloc(90000, &memory).ok());
  EXPECT_EQ(emulator::bytes_in_use(), before + 90000);
  expect_own_kernels(gpu);
  gpu.memory.free(memory, 90000);
}

}  // namespace
}  // namespace moe
