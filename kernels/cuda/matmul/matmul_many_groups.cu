// SPDX-License-Identifier: MIT
// Matrix products of formats with scales in the tile with many rows.

#include "kernels/cuda/matmul/matmul_many.cuh"

namespace moe::cuda {

cudaError_t product_many_groups(cudaStream_t stream, ProductArgs args) {
  const int32_t blocks = place_outs(args, kWarpPairs);
  const auto run = [&]<class Layout>() {
    using Format = GroupMma<Layout>;
    return args.gated ? start_many<Format, 4, true, true>(stream, args, blocks)
                      : start_many<Format, 4, true, false>(stream, args, blocks);
  };
  return with_group_layout(args.outs[0].weight.matrix.format, run);
}

}  // namespace moe::cuda
