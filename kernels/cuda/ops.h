// SPDX-License-Identifier: MIT
#pragma once
// The operations of the CUDA device, each in a file with its kernels and launch function. All
// pointers are device memory. Nothing here waits: sizes known only to the device (the number of
// routed pairs) are read by kernels.
//
// Sums of codes are exact. Norms, quantisation, activations, routers, RoPE and sums of experts
// perform the operations of kernels/README.md in the CPU's order and are bit-identical; float
// weights and attention sum in another order.

#include <span>

#include "kernels/cuda/launch.h"
#include "kernels/device.h"
#include "src/base/inline.h"

namespace moe::cuda {

/// Loads a kernel: cudaErrorNoKernelImageForDevice or a similar error if this module has no code
/// for the current GPU.
cudaError_t load_code();
/// The compute capabilities of the module's code, as 100 times 8.6.
std::span<const int> built_for();

/// A number of rows: fixed, or counted on the device (then `n` is the maximum).
struct RowCount {
  int32_t n = 0;
  const int32_t* counted = nullptr;
};

/// One norm for all rows, or norms[group[row]].
struct RowNorms {
  Norm one;
  const Norm* norms = nullptr;
  const int32_t* group = nullptr;  // (n_rows)
};

/// int8 codes of rows of activations (kernels/README.md, Quantisation). Codes from d to ld are 0.
struct Codes {
  int8_t* codes = nullptr;  // (n_rows, ld)
  int64_t ld = 0;           // a multiple of 128
  float* scales = nullptr;  // (n_rows, scales_per_row(act, d))
  int32_t* sums = nullptr;  // of the codes, of the same shape
};
inline int64_t codes_ld(int64_t d) { return (d + 127) / 128 * 128; }
MOE_INLINE int64_t scales_per_row(ActPrecision act, int64_t d) {
  if (act != ActPrecision::kA8Block && act != ActPrecision::kA8Group) return 1;
  const int64_t n = inputs_per_scale(act, 0);
  return (d + n - 1) / n;
}

struct PrepareOp {
  RowCount rows;
  int32_t d = 0;
  const float* x = nullptr;  // (n_rows, ld_x)
  int64_t ld_x = 0;
  RowNorms norm;
  float* normed = nullptr;  // (n_rows, d) or null; may be x where ld_x is d
  Codes a8;                 // codes null: not requested
  Codes a8_block;
  Codes a8_group;
};
/// norm(x), as floats and as codes of each precision.
cudaError_t prepare_rows(cudaStream_t stream, const PrepareOp& op);

/// Assignment of rows to matrices. Without `group`: all rows use matrix 0.
struct RowGroups {
  RowCount rows;  // of outputs
  int32_t max_groups = 1;
  const int32_t* n_groups = nullptr;   // counted on the device; null: max_groups
  const int32_t* group = nullptr;      // (n_groups): matrix of each group, ascending
  const int32_t* begin = nullptr;      // (max_groups + 1): its output rows, up to n_groups
  const int32_t* input_row = nullptr;  // (n_rows): the input row per output row; null: the same
};

/// A matrix with its bias, as stored in device tables.
struct Weight {
  Matrix matrix;
  const float* bias = nullptr;  // (rows) or null
};

/// One output of a matrix product: y (+)= scale * (x W^T + bias).
struct MatmulOut {
  Weight weight;  // of all rows, or, with `table`, the fields common to its matrices
  const Weight* table = nullptr;  // by group
  float* y = nullptr;             // (n_rows, ld_y)
  int64_t ld_y = 0;
  bool accumulate = false;  // y = fused(scale, x W^T + bias, y)
  float scale = 1;
};

/// The inputs in every precision that a matrix needs.
struct MatmulInput {
  const float* x = nullptr;  // (n_rows, ld_x), normed
  int64_t ld_x = 0;
  Codes a8;
  Codes a8_block;
  Codes a8_group;
};

inline constexpr int32_t kMaxMatmulOuts = 3;

class ProductLibrary;  // product_library.h

struct MatmulOp {
  RowGroups rows;
  MatmulInput in;
  MatmulOut outs[kMaxMatmulOuts];
  int32_t n_outs = 0;
  ProductLibrary* library = nullptr;  // may compute dense matrix products; null during capture
};
/// Several matrices on one input. The matrices of one table share shape, format, kinds and stride.
cudaError_t matmul(cudaStream_t stream, const MatmulOp& op);

struct GatedOp {
  RowGroups rows;
  MatmulInput in;
  MatmulOut gate;  // uses only weight and table; an empty weight: no gate
  MatmulOut up;
  ActivationConfig act;
  float* hidden = nullptr;  // (n_rows, ld_hidden)
  int64_t ld_hidden = 0;
  uint64_t* n_positive = nullptr;  // += activations above 0, or null
};
/// hidden = act(gate x) * (up x + up_offset), or act(up x).
cudaError_t gated_matmul(cudaStream_t stream, const GatedOp& op);

/// Bit-identical to the CPU.
cudaError_t cap_rows(cudaStream_t stream, const CapOp& op);

/// Bit-identical to the CPU.
cudaError_t gate_rows(cudaStream_t stream, const GateOp& op);

struct EmbedOp {
  Matrix table;
  Matrix positions;  // may be empty
  const BatchRow* rows = nullptr;
  int32_t n_rows = 0;
  float multiplier = 1;
  float* x = nullptr;  // (n_rows, table.cols)
};
cudaError_t embed_rows(cudaStream_t stream, const EmbedOp& op);

/// AttentionOp with `rows` and `caches` on the device; KvLayer in the layout of
/// kernels/cuda/attention/kv_layout.h. op.q and op.k may be overwritten.
struct DeviceAttentionOp {
  AttentionOp op;
  float* partial = nullptr;  // scratch, attention_partial_floats()
  int32_t* arrived =
      nullptr;  // attention_arrived_ints(), 0 before and after; null: one more launch
  int32_t max_rows_of_a_session = 0;  // 1: decode
  int32_t max_position = 0;           // upper bound of row positions
};
int64_t attention_partial_floats(int32_t max_rows, int32_t n_heads, int32_t head_dim);
int64_t attention_arrived_ints(int32_t max_rows, int32_t n_heads);
/// QK norm, RoPE, storing K and V, attention. The result does not depend on max_position.
cudaError_t attend(cudaStream_t stream, const DeviceAttentionOp& op);

/// A mixer's state that is not finite, for the host.
struct MixerFault {
  int32_t found;  // 0: none
  int32_t layer;
  int32_t kind;  // MixerKind
  int32_t position;
};

/// Consecutive rows of one session, and where its state is.
struct MixedText {
  int32_t first;
  int32_t n_rows;
  MixerState state;
};

/// A MixerOp with `rows` and `vectors` on the device, without its states.
struct DeviceMixOp {
  MixerOp op;
  const MixedText* texts = nullptr;
  int32_t n_texts = 0;
  int32_t* bad = nullptr;                 // 0 before mix_texts() and after finish_mixed()
  MixerFault* fault = nullptr;            // the step's first fault, if no router has failed
  const int32_t* router_fault = nullptr;  // DeviceRouteOp::fault
};
/// The rows of `texts`. Bit-identical to the CPU.
cudaError_t mix_texts(cudaStream_t stream, const DeviceMixOp& op);
/// Completes all rows of op.op, of whichever texts, and sets the fault.
cudaError_t finish_mixed(cudaStream_t stream, const DeviceMixOp& op);

/// Routing on the device; arrays of `out` as in struct Routing, all set except scores.
struct DeviceRouteOp {
  RouterConfig config;
  const float* scores = nullptr;          // (n_tokens, n_experts); null: RouterScores::kTable
  const float* selection_bias = nullptr;  // (n_experts) or null
  const int32_t* table = nullptr;         // kTable: (vocab)
  const BatchRow* rows = nullptr;
  int32_t n_subheads = 1;  // token = row * n_subheads + sub-head
  int32_t n_experts = 0;
  Routing out;
  float* prob = nullptr;     // (n_tokens, max_k)
  float* floats = nullptr;   // scratch (n_tokens, 2 n_experts)
  int32_t* ints = nullptr;   // scratch (n_tokens, n_experts)
  int32_t* fault = nullptr;  // set to 1 + token if a score is NaN or infinite
};
/// Every router of kernels/router, including capacity.
cudaError_t route_tokens(cudaStream_t stream, const DeviceRouteOp& op);

/// Scores of a cosine router: cosines of proj(x) and the embeddings.
struct CosineOp {
  RouterConfig config;
  const float* projected = nullptr;  // (n_tokens, d_e)
  Matrix embedding;                  // (n_experts, d_e)
  const float* lengths = nullptr;  // (n_experts) of the embeddings; null: the kernel measures them
  int32_t n_tokens = 0;
  float* scores = nullptr;  // (n_tokens, n_experts)
};
cudaError_t cosine_scores(cudaStream_t stream, const CosineOp& op);
/// The largest d_e where a block has `shared` bytes of shared memory.
int32_t most_cosine_inputs(size_t shared);

/// The active pairs of a layer, sorted by expert and then by token: a pair is a slot of a token.
struct PairLists {
  int32_t* n_pairs = nullptr;   // (1)
  int32_t* n_groups = nullptr;  // (1) number of selected experts
  int32_t* group = nullptr;     // (n_experts) these experts, ascending
  int32_t* begin = nullptr;     // (n_experts + 1) their pairs
  int32_t* token = nullptr;     // (n_tokens * max_k) of each pair
  int32_t* expert = nullptr;    // (n_tokens * max_k) of each pair
  int32_t* place = nullptr;     // (n_tokens, max_k) pair of each slot, -1: none
};
/// n_tokens and max_k as in `routing`. No atomics: the order is the same in every run.
cudaError_t group_pairs(cudaStream_t stream, const Routing& routing, int32_t n_experts,
                        const PairLists& out, int32_t* scratch);
/// int32 scratch elements of group_pairs().
int64_t group_pairs_scratch(int32_t n_tokens, int32_t max_k, int32_t n_experts);

/// Moves each pair by its expert's `moved`, for another order of experts. Changes token, expert and
/// place of `pairs`, not group and begin.
struct MovePairsOp {
  Routing routing;
  const int32_t* moved = nullptr;  // (n_experts)
  PairLists pairs;
};
cudaError_t move_pairs(cudaStream_t stream, const MovePairsOp& op);

/// y[i] = x[row[i]].
struct GatherOp {
  RowCount rows;
  const int32_t* row = nullptr;  // (n_rows)
  const float* x = nullptr;      // (any, d)
  int32_t d = 0;
  float* y = nullptr;  // (n_rows, d)
};
cudaError_t gather_rows(cudaStream_t stream, const GatherOp& op);
/// route_tokens() and group_pairs(): one launch for few tokens without capacity.
cudaError_t route_and_group(cudaStream_t stream, const DeviceRouteOp& op, const PairLists& out,
                            int32_t* scratch);

/// Sums the experts' outputs in ascending expert index (a token has each at most once), one fused
/// multiply-add per element. With `y` it includes merge_rows() without a shared expert: y (+)=
/// scale * sum.
struct CombineOp {
  Routing routing;
  const int32_t* place = nullptr;   // PairLists::place
  const float* outputs = nullptr;   // (n_pairs, d)
  const float* subtract = nullptr;  // (n_tokens, d) or null: subtracted from every output (X-MoE)
  int32_t d = 0;
  float* sum = nullptr;  // (n_tokens, d); may be null with y
  float* y = nullptr;    // (n_tokens, d) or null
  bool accumulate = false;
  float scale = 1;
};
cudaError_t combine(cudaStream_t stream, const CombineOp& op);
/// The largest routing.max_k where a block has `shared` bytes of shared memory.
int32_t most_combined(size_t shared);

/// y (+)= scale * (sum + gate * shared), gate sigmoid(gate[row]) or 1. y may be sum.
struct MergeOp {
  int32_t n_rows = 0;
  int32_t d = 0;
  const float* sum = nullptr;     // (n_rows, d) or null: 0
  const float* shared = nullptr;  // (n_rows, d) or null
  const float* gate = nullptr;    // (n_rows) before the sigmoid, or null
  bool accumulate = false;
  float scale = 1;
  float* y = nullptr;
};
cudaError_t merge_rows(cudaStream_t stream, const MergeOp& op);

/// RoutingStats on the device: += one layer's counts.
struct CountOp {
  Routing routing;
  int32_t n_experts = 0;
  uint64_t* tokens_per_expert = nullptr;  // (n_experts)
  uint64_t* experts_per_token = nullptr;  // (n_experts + 1)
  uint64_t* totals = nullptr;             // n_tokens, n_dropped
};
cudaError_t count_routing(cudaStream_t stream, const CountOp& op);

/// Report of sample_rows() on one row besides its sums.
struct SampleHead {
  int32_t bad;
  int32_t best;
  float best_logit;
  int32_t n_candidates;
};

/// A SampleOp with specs and copies on the device. Results are host-readable (pinned memory);
/// scratch is per row and may be uninitialised. Counters are `unsigned long long` for atomicAdd.
struct DeviceSampleOp {
  SampleOp op;
  bool sums = true;        // some spec requests anything
  bool candidates = true;  // some spec requests candidates

  uint64_t* best = nullptr;               // scratch (n_rows, spans)
  int32_t* bad = nullptr;                 // scratch (n_rows, spans)
  uint32_t* counts = nullptr;             // scratch (n_rows, kLogitClasses)
  unsigned long long* classes = nullptr;  // scratch (n_rows, kLogitClasses)
  int32_t* cursor = nullptr;              // scratch (n_rows)

  SampleHead* heads = nullptr;              // (n_rows)
  uint64_t* span_sums = nullptr;            // (n_rows, spans) SampleReport::sums
  uint64_t* span_weights = nullptr;         // (n_rows, spans) SampleReport::weights
  TokenCandidate* candidates_of = nullptr;  // (n_rows, kMaxCandidates)
};
/// Copies rows, and analyses those with a request.
cudaError_t sample_rows(cudaStream_t stream, const DeviceSampleOp& op);

}  // namespace moe::cuda
