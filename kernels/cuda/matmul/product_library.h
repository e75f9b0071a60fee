// SPDX-License-Identifier: MIT
#pragma once
// Interface of matmul.cu to an external library for dense matrix products (GEMM), and when cuBLASLt
// is used (kernels/cuda/README.md).

#include "kernels/cuda/matmul/product_options.h"
#include "kernels/cuda/ops.h"

namespace moe::cuda {

class ProductLibrary {
 public:
  /// Computes the matrix product y of one out with a single matrix, bit-identical to the other
  /// families. *done: it was enqueued; if false without an error, nothing was. `always`: even where
  /// own kernels are expected to be faster. Not during stream capture.
  virtual cudaError_t multiply(cudaStream_t stream, int32_t n_rows, const MatmulInput& in,
                               const MatmulOut& out, bool always, bool* done) = 0;

 protected:
  ~ProductLibrary() = default;
};

/// Plain rows [first_row, first_row + n_rows) of a ternary2 or int8 matrix: out (n_rows, ld), one
/// byte per weight. first_row, n_rows and ld are multiples of 16, ld the next multiple from the
/// inputs on: content after the last input or row is undefined.
cudaError_t unpack_rows(cudaStream_t stream, const Matrix& m, int32_t first_row, int32_t n_rows,
                        int8_t* out, int32_t ld);

/// Completes the code sums of weight rows [first_row, first_row + n_rows) and `tokens` rows of
/// activations from first_token on.
struct FinishOp {
  const int32_t* sums = nullptr;  // (tokens, n_rows)
  int32_t first_row = 0;
  int32_t n_rows = 0;  // those from weight.matrix.rows on are skipped
  int32_t first_token = 0;
  int32_t tokens = 0;
  const float* act_scales = nullptr;  // (all tokens)
  MatmulOut out;
};
cudaError_t finish_sums(cudaStream_t stream, const FinishOp& op);

}  // namespace moe::cuda
