// SPDX-License-Identifier: MIT
// Compares kernels/cuda/matmul/cublas_lt_api.h with cuBLASLt's own header, if it is installed.

#include "kernels/cuda/matmul/cublas_lt_api.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <cstddef>
#include <type_traits>

namespace moe::cuda::lt {
namespace {

static_assert(kSuccess == static_cast<int>(CUBLAS_STATUS_SUCCESS));
static_assert(kR8I == static_cast<int>(CUDA_R_8I) && kR32I == static_cast<int>(CUDA_R_32I));
static_assert(kCompute32I == static_cast<int>(CUBLAS_COMPUTE_32I));
static_assert(kOpN == static_cast<int>(CUBLAS_OP_N) && kOpT == static_cast<int>(CUBLAS_OP_T));
static_assert(kDescTransA == static_cast<int>(CUBLASLT_MATMUL_DESC_TRANSA));
static_assert(kDescTransB == static_cast<int>(CUBLASLT_MATMUL_DESC_TRANSB));
static_assert(kPreferWorkspaceBytes == static_cast<int>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
static_assert(kPreferAlignmentB == static_cast<int>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES));
static_assert(sizeof(Algo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Heuristic, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

// Whether parameter types correspond: pointers to pointers, enums to enums, numbers to the same
// numbers.
template <class A, class B>
constexpr bool kAlike = std::is_same_v<A, B> || (std::is_pointer_v<A> && std::is_pointer_v<B>) ||
                        (std::is_enum_v<A> && std::is_enum_v<B> && sizeof(A) == sizeof(B));
template <class A, class B>
struct SameCall : std::false_type {};
template <class R, class S, class... A, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<kAlike<R, S> && (... && kAlike<A, B>)> {
};
#define MOE_SAME_CALL(ours, theirs) \
  static_assert(SameCall<decltype(Functions::ours), decltype(&theirs)>::value)

MOE_SAME_CALL(create, cublasLtCreate);
MOE_SAME_CALL(destroy, cublasLtDestroy);
MOE_SAME_CALL(version, cublasLtGetVersion);
MOE_SAME_CALL(desc_create, cublasLtMatmulDescCreate);
MOE_SAME_CALL(desc_destroy, cublasLtMatmulDescDestroy);
MOE_SAME_CALL(desc_set, cublasLtMatmulDescSetAttribute);
MOE_SAME_CALL(layout_create, cublasLtMatrixLayoutCreate);
MOE_SAME_CALL(layout_destroy, cublasLtMatrixLayoutDestroy);
MOE_SAME_CALL(preference_create, cublasLtMatmulPreferenceCreate);
MOE_SAME_CALL(preference_destroy, cublasLtMatmulPreferenceDestroy);
MOE_SAME_CALL(preference_set, cublasLtMatmulPreferenceSetAttribute);
MOE_SAME_CALL(find_algorithms, cublasLtMatmulAlgoGetHeuristic);
MOE_SAME_CALL(matmul, cublasLtMatmul);

}  // namespace
}  // namespace moe::cuda::lt
#endif
