// SPDX-License-Identifier: MIT
#pragma once
// The part of cuBLASLt that is used, loaded at run time: the library is half a gigabyte, and the
// module must load without it. Names, values and layouts are those of <cublasLt.h> in CUDA 12 and
// 13; tests/gpu/cublas_lt_abi.cpp compares them.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace moe::cuda::lt {

struct Context;
struct MatmulDesc;
struct Layout;
struct Preference;

enum Result : int { kSuccess = 0 };
enum DataType : int { kR8I = 3, kR32I = 10 };
enum ComputeType : int { kCompute32I = 72 };
enum Operation : int32_t { kOpN = 0, kOpT = 1 };
enum DescAttribute : int { kDescTransA = 3, kDescTransB = 4 };
enum PreferenceAttribute : int { kPreferWorkspaceBytes = 1, kPreferAlignmentB = 6 };

struct Algo {
  uint64_t data[8];
};
struct Heuristic {
  Algo algo;
  size_t workspace_bytes;
  Result state;
  float waves;
  int reserved[4];
};

/// One entry per function, in the order of kFunctionNames.
struct Functions {
  Result (*create)(Context** out);
  Result (*destroy)(Context* context);
  size_t (*version)();
  Result (*desc_create)(MatmulDesc** out, ComputeType compute, DataType scale);
  Result (*desc_destroy)(MatmulDesc* desc);
  Result (*desc_set)(MatmulDesc* desc, DescAttribute what, const void* value, size_t bytes);
  Result (*layout_create)(Layout** out, DataType type, uint64_t rows, uint64_t cols, int64_t ld);
  Result (*layout_destroy)(Layout* layout);
  Result (*preference_create)(Preference** out);
  Result (*preference_destroy)(Preference* preference);
  Result (*preference_set)(Preference* preference, PreferenceAttribute what, const void* value,
                           size_t bytes);
  Result (*find_algorithms)(Context* context, MatmulDesc* desc, Layout* a, Layout* b, Layout* c,
                            Layout* d, Preference* preference, int wanted, Heuristic* out,
                            int* found);
  Result (*matmul)(Context* context, MatmulDesc* desc, const void* alpha, const void* a,
                   Layout* layout_a, const void* b, Layout* layout_b, const void* beta,
                   const void* c, Layout* layout_c, void* d, Layout* layout_d, const Algo* algo,
                   void* workspace, size_t workspace_bytes, cudaStream_t stream);
};
inline constexpr const char* kFunctionNames[] = {
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtGetVersion",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmul",
};

/// sums (n, m) = codes (n, k) weights (m, k)^T, rows of int8 and int32. cuBLASLt is column-major:
/// its A is `weights` transposed, its B `codes`, its C and D `sums`. Its int8 kernels require m, k
/// and strides to be multiples of 4, A transposed and B not.
struct Shape {
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
  int32_t ld_weights = 0;
  int32_t ld_codes = 0;
  int32_t codes_alignment = 256;  // bytes; weights, sums and workspace are 256-byte aligned
  bool operator==(const Shape&) const = default;
};

/// The algorithm for a shape.
struct Plan {
  Shape shape;
  bool usable = false;  // there is an algorithm
  Layout* weights = nullptr;
  Layout* codes = nullptr;
  Layout* sums = nullptr;
  Algo algo = {};
};

/// cuBLASLt on the GPU that is current in the opening thread. Not thread-safe.
class Library {
 public:
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  /// Opens the first of `names` (null-terminated) that has every function and initialises. False:
  /// none.
  bool open(const char* const* names);
  bool is_open() const { return desc_ != nullptr; }
  size_t version() const { return is_open() ? functions_.version() : 0; }

  /// The plan of a shape; not usable if cuBLASLt has no algorithm. Call clear() when done.
  Plan plan(const Shape& shape, size_t workspace_bytes);
  void clear(Plan* plan);
  /// Enqueues a matrix product. The plan is usable and has the workspace size that it was made for.
  Result multiply(const Plan& plan, const int8_t* weights, const int8_t* codes, int32_t* sums,
                  void* workspace, size_t workspace_bytes, cudaStream_t stream);

 private:
  bool open_one(const char* name);
  bool start();
  void close();
  bool find_algorithm(Preference* preference, Plan* plan, size_t workspace_bytes);

  void* file_ = nullptr;
  Functions functions_ = {};
  Context* context_ = nullptr;
  MatmulDesc* desc_ = nullptr;
};

}  // namespace moe::cuda::lt
