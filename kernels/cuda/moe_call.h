#pragma once
// One call of Device::moe on its way through its parts. Private to kernels/cuda.

#include "kernels/cuda/device_cuda_impl.h"

namespace moe::cuda {

struct MoeCall {
  CudaDevice& device;
  CudaStream& s;
  const MoeOp& op;
  const float* x = nullptr;     // (n_rows, d_model), normed
  const float* subs = nullptr;  // (n_tokens, d_in)
  const BatchRow* rows = nullptr;
  const LayerTable* table = nullptr;  // of the experts; null: they are offloaded
  int32_t d_in = 0;
  int32_t n_tokens = 0;
  int32_t max_k = 0;
  uint64_t* n_positive = nullptr;     // on the device, or null
  uint64_t cpu_positive = 0;          // more of them, of experts that the CPU computed
  uint64_t activations_per_pair = 0;  // what n_positive is a part of
  MatmulInput input = {};             // x as codes, as far as `have` says
  WantedInputs have{false, false, false};
  Routing routing = {};  // of the tokens that are computed at once
  bool grouped = false;  // the pairs of all tokens are sorted already
};

/// The pairs that one pass computes, and their experts.
struct Pass {
  const LayerTable* table = nullptr;
  RowGroups groups;                 // input_row: token of each pair
  const int32_t* expert = nullptr;  // of each pair, its place in the table
  MatmulInput in;                   // tokens
  float* outputs = nullptr;         // of the pairs
};

/// `n` rows of floats as they are.
InputRows input_rows(RowCount n, int32_t d, const float* x);

/// x, or n rows of it from `first` on, in the wanted precisions: what is there already, or made
/// now.
MatmulInput codes_of(MoeCall& call, int32_t first, int32_t n, int32_t d, const float* x,
                     const WantedInputs& wanted);

/// hidden = act(gate x) * up x for the rows of `groups`, then its norm and codes. `expert`: of each
/// row, where there is a table of norms.
MatmulInput hidden_rows(MoeCall& call, const RowGroups& groups, const NetworkTable& network,
                        const MatmulInput& in, const int32_t* expert);

/// The outputs of all pairs of a pass.
void run_pass(MoeCall& call, const Pass& pass);

/// run_pass() for a layer whose experts are not all on the GPU. `stack`: they are X-MoE's.
Status run_waves(MoeCall& call, const Pass& whole, bool* stack);

/// The call's choices on the device.
Routing routing_of(const MoeCall& call);

/// Has the call count activations above 0, where somebody wants to know.
void begin_counting(MoeCall& call);
/// Adds the call's statistics to the host's. Waits.
Status add_statistics(MoeCall& call);
/// Copies the routing to op.routing_out. Waits.
Status report_routing(MoeCall& call);

}  // namespace moe::cuda
