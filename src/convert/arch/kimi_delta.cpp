// SPDX-License-Identifier: MIT
// Keys of Kimi's delta rule and of the latent attention beside it, and the places of its vectors.
#include "src/convert/arch/kimi_delta.h"

#include "formats/import/failure.h"
#include "kernels/mixers/kimi_delta.h"
#include "src/convert/arch/mamba.h"
#include "src/convert/mixer.h"

namespace moe {
namespace {

// (channels, 1, taps) or (outputs, inputs) in a checkpoint, with channels or outputs last in a
// model.
void turn(int32_t n, std::vector<int64_t> shape, Source* source) {
  source->shape = std::move(shape);
  source->row_stride = source->shape.back();
  source->row_groups.pieces = {{n, 0}};
  source->row_groups.stride = 1;
}

void place(int weight, const MixerConfig& rule, const Slot& slot, const Checkpoint& checkpoint,
           Source* source) {
  const int32_t taps = rule.count(KimiDeltaMixer::kLength),
                rank = rule.count(KimiDeltaMixer::kRank);
  if (weight >= KimiDeltaMixer::kQConv && weight <= KimiDeltaMixer::kVConv) {
    turn(slot.rows / taps, {slot.rows / taps, 1, taps}, source);
  } else if (weight == KimiDeltaMixer::kZUp || weight == KimiDeltaMixer::kAUp) {
    turn(slot.rows / rank, {slot.rows / rank, rank}, source);
  } else if (weight == KimiDeltaMixer::kALog) {
    const SourceTensor* const tensor = checkpoint.find(source->tensor);
    if (tensor != nullptr && tensor->shape.size() == 4) source->shape = {1, 1, slot.rows, 1};
  }
}

}  // namespace

void add_deepseek_keys(const KimiDefaults& defaults, RenamedConfig* config) {
  const auto rename = [&](const char* from, const char* to, const Json& fallback) {
    config->rename(from, to);
    config->fallback(to, fallback);
  };
  rename("model_max_length", "max_position_embeddings", defaults.context);
  rename("moe_renormalize", "norm_topk_prob", true);
  rename("num_expert_group", "n_group", defaults.n_groups);
  rename("num_experts", "n_routed_experts", defaults.n_experts);
  rename("num_experts_per_token", "num_experts_per_tok", 8);
  rename("num_shared_experts", "n_shared_experts", 1);
  config->fallback("topk_group", defaults.top_groups);
  config->fallback("first_k_dense_replace", defaults.n_dense);
  (void)config->node().at("qk_rope_head_dim");
  // `transformers` overwrites the file's head_dim, too: published ones have there what a model
  // without a latent would have, or the width of the rule's heads.
  config->copy("qk_rope_head_dim", "head_dim");
  if (!config->has("num_key_value_heads")) {
    config->copy("num_attention_heads", "num_key_value_heads");
  }
}

MixerConfig read_kimi_delta(ConfigKeys* keys, int32_t heads, float eps) {
  MixerConfig rule = built_mixer("kimi_delta");
  const auto width =
      static_cast<float>(keys->integer("linear_head_dim", 128, 1, DeltaSizes::kMaxDim));
  rule.params[KimiDeltaMixer::kHeads] =
      static_cast<float>(keys->integer("linear_num_heads", heads, 1, DeltaSizes::kMaxHeads));
  rule.params[KimiDeltaMixer::kKeyDim] = rule.params[KimiDeltaMixer::kValueDim] =
      rule.params[KimiDeltaMixer::kRank] = width;
  rule.params[KimiDeltaMixer::kLength] =
      static_cast<float>(keys->integer("linear_conv_kernel_dim", 4, 1, Convolution::kMaxTaps));
  rule.params[KimiDeltaMixer::kEps] = eps;
  return rule;
}

void set_kimi_delta(Decoder* d, const MixerConfig& rule, const std::vector<bool>& attends) {
  const std::vector<JsonNode> types = d->keys.list("layer_types", d->layers().size());
  for (size_t l = 0; l < d->layers().size(); ++l) {
    const bool attention =
        types.empty() ? attends[l] : types[l].choice({"linear_attention", "full_attention"}) == 1;
    if (!attention) replace_attention(rule, &d->layer(l));
  }
}

void arrange_kimi_delta(const Checkpoint& checkpoint, Imported* out) {
  const auto first = static_cast<int>(mixer_role(built_mixer("kimi_delta").kind, 0));
  std::vector<MixerConfig> rules;
  for (const LayerConfig& layer : out->config.layers) rules.push_back(layer.mixer.mixer);
  out->locate = [locate = std::move(out->locate), rules = std::move(rules), first, &checkpoint](
                    const SlotGroup& group, const Slot& slot) {
    Source source = locate(group, slot);
    if (group.part == Part::kMixer && slot.role >= Role::kFirstMixer) {
      place(static_cast<int>(slot.role) - first, rules[static_cast<size_t>(group.layer)], slot,
            checkpoint, &source);
    }
    return source;
  };
}

}  // namespace moe
