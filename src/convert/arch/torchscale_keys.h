// SPDX-License-Identifier: MIT
#pragma once
// The keys of torchscale's configurations, its own and those that the copy in MH-MoE's repository
// (Huang et al. 2024) adds.

#include "src/convert/arch/config_keys.h"
#include "src/convert/importer.h"

namespace moe {

/// Throws MOE_ERR_UNSUPPORTED for a key that changes what the model computes to something else, and
/// passes those that concern training or the layout of a run.
void refuse_torchscale_variants(ConfigKeys* keys);

/// The experts of a layer, with the gate of torchscale (`moe_top1_expert`) or of MH-MoE's
/// repository (`moe_top_k`).
MoeConfig read_torchscale_experts(ConfigKeys* keys, int32_t d_model);

/// `activation_fn`, squared with `relu_squared`.
Activation torchscale_activation(ConfigKeys* keys);

/// `rotary_embed` and `partial_rotary_factor`, after the width of a head.
void read_torchscale_rope(ConfigKeys* keys, AttentionConfig* attention);

/// Linear layers have no bias, as `no_bias` says, except those around MH-MoE's experts. Changes
/// `out->locate`.
void leave_out_linear_biases(Imported* out);

}  // namespace moe
