// SPDX-License-Identifier: MIT
#pragma once
// cuBLASLt for tests: a fake library on the emulator, the real one on a GPU.

#include <dlfcn.h>

#include "kernels/cuda/matmul/cublas_lt.h"
#include "tests/gpu/product_case.h"
#if defined(MOE_CUDA_EMULATOR)
#include "tests/gpu/fake_cublas_lt.h"
#endif

namespace moe {

#if defined(MOE_CUDA_EMULATOR)
inline constexpr const char* kWholeLibrary[] = {MOE_FAKE_CUBLAS_LT, nullptr};

inline FakeCublasLt& fake() {
  void* file = dlopen(MOE_FAKE_CUBLAS_LT, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(file, nullptr) << dlerror();
  return *reinterpret_cast<FakeCublasLtEntry>(dlsym(file, kFakeCublasLtEntry))();
}
inline int matmuls() { return fake().matmuls; }
#endif

/// Options with little scratch memory: at most 32 weight rows of 512 inputs, and their sums for 64
/// rows.
inline cuda::ProductLibraryOptions small_options() {
  cuda::ProductLibraryOptions o;
#if defined(MOE_CUDA_EMULATOR)
  o.names = kWholeLibrary;
#endif
  o.weight_bytes = 32 * 512;
  o.sum_bytes = 32 * 64 * 4;
  o.workspace_bytes = 8192;
  return o;
}
inline cuda::ProductLibraryOptions roomy_options() {
  cuda::ProductLibraryOptions o = small_options();
  o.weight_bytes = size_t{4} << 20;
  o.sum_bytes = size_t{1} << 20;
  return o;
}

/// The memory of a GPU and its library.
struct GpuLibrary {
  explicit GpuLibrary(const cuda::ProductLibraryOptions& options = small_options(),
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

/// The kinds of weights that cuBLASLt can multiply.
inline std::vector<WeightKind> library_kinds() {
  std::vector<WeightKind> kinds;
  for (const WeightKind& k : all_weight_kinds()) {
    if (k.act == ActPrecision::kA8 && k.scale != ScaleKind::kGroup &&
        k.format != FormatId::kTernary3) {
      kinds.push_back(k);
    }
  }
  return kinds;
}

inline constexpr WeightKind kInt8Rows{FormatId::kInt8, ScaleKind::kRow, 0, ActPrecision::kA8};

/// Expects the bits of the definition; the library computes the products that it can.
inline void expect_dense(GpuLibrary& gpu, const std::vector<const TestMatrix*>& matrices,
                         const TestInput& input, int32_t n, const After& after = {},
                         cuda::ProductKernels family = cuda::ProductKernels::kLibrary,
                         cudaStream_t stream = nullptr) {
  expect_dense(matrices, input, n, {family}, after, {&gpu.library, stream});
}

}  // namespace moe
