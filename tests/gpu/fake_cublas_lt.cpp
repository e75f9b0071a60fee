// SPDX-License-Identifier: MIT
// A fake libcublasLt for int8 products. It interprets its arguments as the library's documentation
// says, and refuses what the documentation says is not supported. It multiplies in a launch of the
// emulator, in stream order. Enum values are defined again here, not taken from kernels/cuda, so
// that wrong values there are detected.

#include "tests/gpu/fake_cublas_lt.h"

#include <cuda_runtime.h>

#include <cstring>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace {

enum Status : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
constexpr int CUDA_R_8I = 3;
constexpr int CUDA_R_32I = 10;
constexpr int CUBLAS_COMPUTE_32I = 72;
constexpr int CUBLAS_OP_N = 0;
constexpr int CUBLAS_OP_T = 1;

FakeCublasLt& fake() {
  static FakeCublasLt state;
  return state;
}

Status refuse(Status status, const char* why) {
  fake().refused = why;
  return status;
}
#define REFUSE_IF(condition, status) \
  if (condition) return refuse(status, #condition)

template <class T>
Status set(T* field, const void* value, size_t bytes) {
  REFUSE_IF(value == nullptr || bytes != sizeof *field, CUBLAS_STATUS_INVALID_VALUE);
  std::memcpy(field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
Status create(T** out, const T& like) {
  *out = new T(like);
  ++fake().objects;
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
Status destroy(T* object) {
  delete object;
  --fake().objects;
  return CUBLAS_STATUS_SUCCESS;
}

struct Context {
  int index;
};
struct Desc {
  int32_t compute;
  int32_t scale;
  int32_t pointer_mode = 0;  // host
  int32_t trans_a = CUBLAS_OP_N;
  int32_t trans_b = CUBLAS_OP_N;
};
struct Layout {
  int32_t type;
  uint64_t rows;
  uint64_t cols;
  int64_t ld;  // distance between columns
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};  // for A, B, C, D
};

/// An algorithm from the heuristic, and the problem it is for.
struct Algo {
  uint64_t m, n, k;
  uint32_t alignment[4];
  uint64_t workspace;
  uint64_t made_here;
};
constexpr uint64_t kMadeHere = 0x6d61646568657265;
static_assert(sizeof(Algo) <= 64);

struct Heuristic {
  uint64_t algo[8];
  size_t workspace;
  int32_t state;
  float waves;
  int32_t reserved[4];
};

/// The documented conditions of int8 kernels on ordinary layouts.
Status check(const Desc* d, const Layout* a, const Layout* b, const Layout* c, const Layout* out,
             Algo* shape) {
  REFUSE_IF(d == nullptr || a == nullptr || b == nullptr || c == nullptr || out == nullptr,
            CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(d->compute != CUBLAS_COMPUTE_32I || d->scale != CUDA_R_32I,
            CUBLAS_STATUS_NOT_SUPPORTED);
  REFUSE_IF(a->type != CUDA_R_8I || b->type != CUDA_R_8I, CUBLAS_STATUS_NOT_SUPPORTED);
  REFUSE_IF(c->type != CUDA_R_32I || out->type != CUDA_R_32I, CUBLAS_STATUS_NOT_SUPPORTED);
  REFUSE_IF(d->trans_a != CUBLAS_OP_T || d->trans_b != CUBLAS_OP_N, CUBLAS_STATUS_NOT_SUPPORTED);
  REFUSE_IF(d->pointer_mode != 0, CUBLAS_STATUS_NOT_SUPPORTED);
  shape->k = a->rows;  // A is transposed
  shape->m = a->cols;
  shape->n = b->cols;
  REFUSE_IF(b->rows != shape->k, CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(out->rows != shape->m || out->cols != shape->n, CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(c->rows != shape->m || c->cols != shape->n, CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(shape->m % 4 != 0 || shape->k % 4 != 0, CUBLAS_STATUS_NOT_SUPPORTED);
  for (const Layout* l : {a, b, c, out}) {
    REFUSE_IF(l->rows == 0 || l->cols == 0, CUBLAS_STATUS_INVALID_VALUE);
    REFUSE_IF(l->ld < static_cast<int64_t>(l->rows), CUBLAS_STATUS_INVALID_VALUE);
    REFUSE_IF(l->ld % 4 != 0, CUBLAS_STATUS_NOT_SUPPORTED);
  }
  return CUBLAS_STATUS_SUCCESS;
}

bool aligned(const void* p, uint64_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

struct Product {
  Algo shape;
  int32_t alpha, beta;
  const int8_t* a;
  const int8_t* b;
  const int32_t* c;
  int32_t* d;
  int64_t lda, ldb, ldc, ldd;
  uint8_t* workspace;

  void run() const {
    std::memset(workspace, 0xee, shape.workspace);  // the library may overwrite its workspace
    for (uint64_t n = 0; n < shape.n; ++n) {
      for (uint64_t m = 0; m < shape.m; ++m) {
        const int8_t* column_a = a + static_cast<int64_t>(m) * lda;
        const int8_t* column_b = b + static_cast<int64_t>(n) * ldb;
        int32_t sum = 0;
        for (uint64_t k = 0; k < shape.k; ++k) sum += int32_t{column_a[k]} * column_b[k];
        int64_t v = int64_t{alpha} * sum;
        const auto at = static_cast<int64_t>(m);
        if (beta != 0) v += int64_t{beta} * c[at + static_cast<int64_t>(n) * ldc];
        d[at + static_cast<int64_t>(n) * ldd] = static_cast<int32_t>(v);
      }
    }
  }
};

}  // namespace

FAKE_API FakeCublasLt* fake_cublas_lt() { return &fake(); }

FAKE_API Status cublasLtCreate(Context** out) {
  if (fake().cannot_start) return CUBLAS_STATUS_NOT_INITIALIZED;
  *out = new Context{++fake().contexts};
  return CUBLAS_STATUS_SUCCESS;
}
FAKE_API Status cublasLtDestroy(Context* context) {
  delete context;
  --fake().contexts;
  return CUBLAS_STATUS_SUCCESS;
}
FAKE_API size_t cublasLtGetVersion() { return 130100; }

FAKE_API Status cublasLtMatmulDescCreate(Desc** out, int compute, int scale) {
  return create(out, Desc{compute, scale});
}
FAKE_API Status cublasLtMatmulDescDestroy(Desc* desc) { return destroy(desc); }
FAKE_API Status cublasLtMatmulDescSetAttribute(Desc* desc, int what, const void* value,
                                               size_t bytes) {
  REFUSE_IF(desc == nullptr, CUBLAS_STATUS_INVALID_VALUE);
  switch (what) {
    case 2:
      return set(&desc->pointer_mode, value, bytes);
    case 3:
      return set(&desc->trans_a, value, bytes);
    case 4:
      return set(&desc->trans_b, value, bytes);
    default:
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute that the fake does not know");
  }
}

FAKE_API Status cublasLtMatrixLayoutCreate(Layout** out, int type, uint64_t rows, uint64_t cols,
                                           int64_t ld) {
  return create(out, Layout{type, rows, cols, ld});
}
FAKE_API Status cublasLtMatrixLayoutDestroy(Layout* layout) { return destroy(layout); }

FAKE_API Status cublasLtMatmulPreferenceCreate(Preference** out) {
  return create(out, Preference{});
}
FAKE_API Status cublasLtMatmulPreferenceDestroy(Preference* p) { return destroy(p); }
FAKE_API Status cublasLtMatmulPreferenceSetAttribute(Preference* p, int what, const void* value,
                                                     size_t bytes) {
  REFUSE_IF(p == nullptr, CUBLAS_STATUS_INVALID_VALUE);
  if (what == 1) return set(&p->workspace, value, bytes);
  if (what >= 5 && what <= 8) return set(&p->alignment[what - 5], value, bytes);
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "a preference that the fake does not know");
}

#if !defined(FAKE_WITHOUT_HEURISTIC)
constexpr size_t kWanted = 4096;  // bytes of workspace, if the preference allows it

FAKE_API Status cublasLtMatmulAlgoGetHeuristic(Context* context, Desc* desc, Layout* a, Layout* b,
                                               Layout* c, Layout* d, Preference* preference,
                                               int wanted, Heuristic* out, int* found) {
  ++fake().heuristics;
  *found = 0;
  REFUSE_IF(context == nullptr || preference == nullptr || wanted < 1 || out == nullptr,
            CUBLAS_STATUS_INVALID_VALUE);
  Algo algo{};
  if (const Status s = check(desc, a, b, c, d, &algo); s != CUBLAS_STATUS_SUCCESS) return s;
  for (const uint32_t bytes : preference->alignment) {
    REFUSE_IF(bytes < 4, CUBLAS_STATUS_NOT_SUPPORTED);
  }
  if (fake().no_algorithm) return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memcpy(algo.alignment, preference->alignment, sizeof algo.alignment);
  algo.workspace = preference->workspace >= kWanted ? kWanted : 0;
  algo.made_here = kMadeHere;
  *out = {};
  std::memcpy(out->algo, &algo, sizeof algo);
  out->workspace = algo.workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
#endif

FAKE_API Status cublasLtMatmul(Context* context, Desc* desc, const void* alpha, const void* a,
                               Layout* layout_a, const void* b, Layout* layout_b, const void* beta,
                               const void* c, Layout* layout_c, void* d, Layout* layout_d,
                               const uint64_t* algo, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
  REFUSE_IF(context == nullptr || alpha == nullptr || beta == nullptr || algo == nullptr,
            CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(a == nullptr || b == nullptr || c == nullptr || d == nullptr,
            CUBLAS_STATUS_INVALID_VALUE);
  Algo shape{};
  const Status s = check(desc, layout_a, layout_b, layout_c, layout_d, &shape);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  Algo promised;
  std::memcpy(&promised, algo, sizeof promised);
  REFUSE_IF(promised.made_here != kMadeHere, CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(promised.m != shape.m || promised.n != shape.n || promised.k != shape.k,
            CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(!aligned(a, promised.alignment[0]) || !aligned(b, promised.alignment[1]) ||
                !aligned(c, promised.alignment[2]) || !aligned(d, promised.alignment[3]),
            CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(workspace_bytes < promised.workspace, CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(promised.workspace != 0 && (workspace == nullptr || !aligned(workspace, 256)),
            CUBLAS_STATUS_INVALID_VALUE);
  REFUSE_IF(c == d && layout_c->ld != layout_d->ld, CUBLAS_STATUS_INVALID_VALUE);
  if (fake().matmuls_until_failure >= 0 && fake().matmuls_until_failure-- == 0) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  Product p{promised,
            0,
            0,
            static_cast<const int8_t*>(a),
            static_cast<const int8_t*>(b),
            static_cast<const int32_t*>(c),
            static_cast<int32_t*>(d),
            layout_a->ld,
            layout_b->ld,
            layout_c->ld,
            layout_d->ld,
            static_cast<uint8_t*>(workspace)};
  std::memcpy(&p.alpha, alpha, sizeof p.alpha);  // a host pointer is read at once
  std::memcpy(&p.beta, beta, sizeof p.beta);
  if (emulator::launch_kernel(stream, 1, 1, 0, [p] { p.run(); }) != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  ++fake().matmuls;
  return CUBLAS_STATUS_SUCCESS;
}
