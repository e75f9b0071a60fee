// SPDX-License-Identifier: MIT
// Matrix products of ternary2 and int8 with many rows.

#include "kernels/cuda/matmul/matmul_many.cuh"

namespace moe::cuda {
namespace {

template <class Format, bool kGated>
cudaError_t start_format(cudaStream_t stream, ProductArgs& args, bool wide) {
  const Matrix& m = args.outs[0].weight.matrix;
  const int32_t blocks = place_outs(args, kWarpPairs);
  if (m.act != ActPrecision::kA8 || m.scale_kind == ScaleKind::kGroup) {
    return start_many<Format, 4, true, kGated>(stream, args, blocks);
  }
  if (wide) return start_many<Format, 8, false, kGated>(stream, args, blocks);
  return start_many<Format, 4, false, kGated>(stream, args, blocks);
}

}  // namespace

int64_t product_many_blocks(const ProductArgs& args) {
  ProductArgs placed = args;
  return int64_t{place_outs(placed, kWarpPairs)} * (args.rows.rows.n / kTokensOf<4>);
}

cudaError_t product_many(cudaStream_t stream, ProductArgs args, bool wide) {
  if (args.outs[0].weight.matrix.format == FormatId::kTernary2) {
    return args.gated ? start_format<Ternary2Mma, true>(stream, args, wide)
                      : start_format<Ternary2Mma, false>(stream, args, wide);
  }
  return args.gated ? start_format<Int8Mma, true>(stream, args, wide)
                    : start_format<Int8Mma, false>(stream, args, wide);
}

}  // namespace moe::cuda
