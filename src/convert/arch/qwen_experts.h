// SPDX-License-Identifier: MIT
#pragma once
// The experts of Qwen's mixtures, from Qwen1.5 to Qwen3.5.

#include "src/convert/arch/decoder.h"

namespace moe {

/// Experts with a softmax router and, where "shared_expert_intermediate_size" says so, a gated
/// shared expert; dense layers as "mlp_only_layers" and "decoder_sparse_step" say. `renormalised`:
/// "norm_topk_prob" if that is missing.
void add_qwen_experts(Decoder* d, bool renormalised);

}  // namespace moe
