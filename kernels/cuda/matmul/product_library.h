#pragma once
// Dense products that somebody else's library computes: the interface that matmul.cu sees, and when
// cuBLASLt is used (kernels/cuda/README.md).

#include "kernels/cuda/matmul/product_options.h"
#include "kernels/cuda/ops.h"

namespace moe::cuda {

class ProductLibrary {
 public:
  /// y of one out, every row of which meets its one matrix, with the bits of the other families.
  /// *done says whether it was enqueued; if not, and without an error, nothing was. `always`: also
  /// where own kernels are thought to be faster. Not while the stream is captured.
  virtual cudaError_t multiply(cudaStream_t stream, int32_t n_rows, const MatmulInput& in,
                               const MatmulOut& out, bool always, bool* done) = 0;

 protected:
  ~ProductLibrary() = default;
};

/// Plain rows [first_row, first_row + n_rows) of a ternary2 or int8 matrix: out (n_rows, ld), one
/// byte a weight. first_row, n_rows and ld are multiples of 16, ld the next one from the inputs on:
/// what lies behind the last input or row is whatever the tiles hold there.
cudaError_t unpack_rows(cudaStream_t stream, const Matrix& m, int32_t first_row, int32_t n_rows,
                        int8_t* out, int32_t ld);

/// What follows the sums of codes of weight rows [first_row, first_row + n_rows) and of `tokens`
/// rows of activations from first_token on.
struct FinishOp {
  const int32_t* sums = nullptr;  // (tokens, n_rows)
  int32_t first_row = 0;
  int32_t n_rows = 0;  // those from weight.matrix.rows on are left out
  int32_t first_token = 0;
  int32_t tokens = 0;
  const float* act_scales = nullptr;  // (all tokens)
  MatmulOut out;
};
cudaError_t finish_sums(cudaStream_t stream, const FinishOp& op);

}  // namespace moe::cuda
