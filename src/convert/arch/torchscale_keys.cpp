// SPDX-License-Identifier: MIT
// Reads torchscale's keys of layers, experts and precision, and refuses values with another
// meaning.
#include "src/convert/arch/torchscale_keys.h"

#include <string_view>
#include <utility>

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;

// Keys of MH-MoE's repository. Its linear layers may quantise weights and inputs; with 32 bits
// they do not, and then most keys about quantising mean nothing.
void refuse_quantised(ConfigKeys* keys) {
  // A part of that repository's configuration does not show the bits, which it sets to 1 and 8.
  if (keys->has("moe_top_k") && !(keys->has("weight_bits") && keys->has("input_bits"))) {
    fail_value(keys->node("moe_top_k"),
               "with \"weight_bits\": 32 and \"input_bits\": 32 it is: their defaults are 1 and 8");
  }
  for (const char* key : {"weight_bits", "input_bits", "attn_bits", "query_bits"}) {
    keys->require(key, 32);
  }
  for (const char* key : {"ffn_bits", "fc2_bits"}) keys->require(key, -1);
  if (keys->has("input_quant_method")) {  // the others also clip what they do not quantise
    (void)keys->node("input_quant_method").choice({"elastic", "bwn", "absmax_per_token"});
  }
  for (const char* key :
       {"binary_attn", "binary_query", "binary_key", "binary_routing", "quant_ffn_output",
        "quant_before_rope", "use_quant_for_activation", "smoothquant", "nozero_rmsnorm"}) {
    keys->require(key, false);
  }
  keys->ignore({"weight_quant_method",
                "weight_featurewise",
                "ffn_quant_method",
                "fc2_quant_method",
                "attn_quant_method",
                "key_quant_method",
                "key_bits",
                "attn_quant_symmetric",
                "attn_input_absmean_scale",
                "quant_ffn_only",
                "hadamard_group",
                "blockwise_quant",
                "weight_blocksize",
                "weight_blockscale",
                "grad_act",
                "smoothquant_alpha",
                "absmean_alpha",
                "input_absmean_alpha",
                "fc2_input_absmean_scale",
                "sparse_blocksize",
                "fc2_sparse_blocksize",
                "sparse_ratio",
                "fc2_sparse_ratio",
                "sparse_alpha",
                "sparse_before_quant"});
}

}  // namespace

void refuse_torchscale_variants(ConfigKeys* keys) {
  for (const char* key :
       {"multiway", "xpos_rel_pos", "mhmoe_head_proj", "ffn_head_proj", "key_norm", "bmt"}) {
    keys->require(key, false);
  }
  keys->require("rel_pos_buckets", 0);
  for (const char* key : {"group_norm_size", "model_parallel_size", "kv_quant_group"}) {
    keys->require(key, 1);
  }
  keys->require("moe_lora_rank", -1);
  if (keys->number("negative_slope", -1.0f) != -1.0f) {
    fail_value(keys->node("negative_slope"), "-1, none, is");
  }
  refuse_quantised(keys);
  keys->ignore({"dropout",
                "drop_path_rate",
                "activation_dropout",
                "bert_init",
                "max_rel_pos",
                "checkpoint_activations",
                "fsdp",
                "ddp_rank",
                "flash_attention",
                "moe_gating_use_fp32",
                "moe_eval_capacity_token_fraction",
                "moe_second_expert_policy",
                "moe_normalize_gate_prob_before_dropping",
                "moe_second_expert_threshold",
                "moe_second_expert_threshold_warmup",
                "moe_second_expert_threshold_init",
                "moe_expert_noise_threshold",
                "moe_expert_noise_threshold_warmup",
                "moe_expert_noise_threshold_init",
                "max_target_positions",
                "max_source_positions",
                "xpos_scale_base",
                "img_size",
                "patch_size",
                "in_chans"});
}

MoeConfig read_torchscale_experts(ConfigKeys* keys, int32_t d_model) {
  MoeConfig m;
  m.n_experts = keys->integer("moe_expert_count", 1, 1 << 16);
  m.n_subheads = keys->integer("mhmoe_heads_number", 1, 1, kMaxWidth);
  if (d_model % m.n_subheads != 0) {
    fail_value(keys->node("mhmoe_heads_number"),
               "a divisor of the width, " + std::to_string(d_model) + ", is");
  }
  m.head = m.merge = m.n_subheads > 1;
  const bool any_k = keys->has("moe_top_k");
  if (m.n_subheads > 1 && !any_k) {
    fail_value(keys->node("mhmoe_heads_number"),
               "with \"moe_top_k\" it is: MH-MoE's repository writes both");
  }
  const bool top1 = keys->boolean("moe_top1_expert", false);
  m.router.k = any_k ? keys->integer("moe_top_k", 1, m.n_experts) : top1 ? 1 : 2;
  // The top-k gate leaves the probabilities as they are, whatever
  // moe_normalize_gate_prob_before_dropping says; the top-2 gate divides them by their sum.
  const bool divides = !any_k && !top1;
  if (keys->boolean("use_xmoe", false)) {
    m.router.kind = RouterKind::kCosine;
    m.router.gate = CosineGate::kSoftmax;
    m.router.tau = 1;
    m.router.normalise_token = false;
    m.router.topk_norm = divides ? 1 : 0;
  } else {
    m.router.kind = RouterKind::kSoftmax;
    m.router.weights = divides ? RouterWeights::kRenormalised : RouterWeights::kRaw;
  }
  return m;
}

Activation torchscale_activation(ConfigKeys* keys) {
  const Activation plain =
      keys->has("activation_fn") ? keys->activation("activation_fn") : Activation::kGelu;
  if (!keys->boolean("relu_squared", false)) return plain;
  if (plain != Activation::kRelu) {
    fail_value(keys->node("relu_squared"), "with \"activation_fn\": \"relu\" it is");
  }
  return Activation::kRelu2;
}

void read_torchscale_rope(ConfigKeys* keys, AttentionConfig* attention) {
  const float share = keys->number("partial_rotary_factor", 1.0f);
  if (!keys->boolean("rotary_embed", false)) return;
  const bool is_share = share > 0 && share <= 1;
  const float dims_of_head = is_share ? share * static_cast<float>(attention->head_dim) : 0;
  const auto dims = static_cast<int32_t>(dims_of_head);
  if (dims < 2 || dims % 2 != 0) {
    fail_value(keys->node("partial_rotary_factor"),
               "a share of the heads' width that is even and at least 2 is");
  }
  attention->rope = RopeConfig{};
  attention->rope.kind = RopeKind::kHalf;
  attention->rope.dims = dims;
}

void leave_out_linear_biases(Imported* out) {
  out->locate = [all = std::move(out->locate)](const SlotGroup& group, const Slot& slot) {
    const std::string_view name = slot.name;
    for (const char* bias :
         {".q.bias", ".k.bias", ".v.bias", ".o.bias", ".gate.bias", ".up.bias", ".down.bias"}) {
      if (name.ends_with(bias)) return Source{};
    }
    return all(group, slot);
  };
}

}  // namespace moe
