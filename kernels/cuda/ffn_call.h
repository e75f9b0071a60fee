// SPDX-License-Identifier: MIT
#pragma once
// State of one Device::ffn call. Private to kernels/cuda.

#include "kernels/cuda/device_cuda_impl.h"

namespace moe::cuda {

struct FfnCall {
  CudaDevice& device;
  CudaStream& s;
  const FfnOp& op;
  const float* x = nullptr;     // (n_rows, d_model), normed
  const float* subs = nullptr;  // (n_tokens, d_in)
  const BatchRow* rows = nullptr;
  const LayerTable* table = nullptr;  // of the experts; null: offloaded
  int32_t d_in = 0;
  int32_t n_tokens = 0;
  int32_t max_k = 0;
  uint64_t* n_positive = nullptr;     // on the device, or null
  uint64_t cpu_positive = 0;          // from experts computed on the CPU
  uint64_t activations_per_pair = 0;  // the total that n_positive counts in
  MatmulInput input = {};             // x as codes, in the precisions in `have`
  WantedInputs have = {};
  Routing routing = {};  // of the tokens computed at once
  bool grouped = false;  // the pairs of all tokens are sorted
};

/// The pairs of one pass, and their experts.
struct Pass {
  const LayerTable* table = nullptr;
  RowGroups groups;                 // input_row: token of each pair
  const int32_t* expert = nullptr;  // place in the table, per pair
  MatmulInput in;                   // tokens
  float* outputs = nullptr;         // of the pairs
};

/// `n` rows of unchanged floats.
InputRows input_rows(RowCount n, int32_t d, const float* x);

/// x, or n rows of it from `first` on, in the requested precisions; reuses existing codes.
MatmulInput codes_of(FfnCall& call, int32_t first, int32_t n, int32_t d, const float* x,
                     const WantedInputs& wanted);

/// hidden = act(gate x) * up x for the rows of `groups`, then its norm and codes. `expert`: per
/// row, if there is a table of norms.
MatmulInput hidden_rows(FfnCall& call, const RowGroups& groups, const NetworkTable& network,
                        const MatmulInput& in, const int32_t* expert);

/// Computes the outputs of all pairs of a pass.
void run_pass(FfnCall& call, const Pass& pass);

/// run_pass() for a layer whose experts are not all on the GPU. `stack`: they are X-MoE's.
Status run_waves(FfnCall& call, const Pass& whole, bool* stack);

/// The call's routing on the device.
Routing routing_of(const FfnCall& call);

/// Makes the call count activations above 0, if requested.
void begin_counting(FfnCall& call);
/// Adds the call's statistics to the host's. Waits.
Status add_statistics(FfnCall& call);
/// Copies the routing to op.routing_out. Waits.
Status report_routing(FfnCall& call);

}  // namespace moe::cuda
