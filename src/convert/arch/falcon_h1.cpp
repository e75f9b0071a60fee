// SPDX-License-Identifier: MIT
// Falcon-H1 (TII 2025): attention and Mamba2 side by side in each layer. The multipliers of its
// matrices become part of their weights.

#include "formats/import/failure.h"
#include "kernels/mixers/mamba2.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/arch/mamba.h"
#include "src/convert/mixer.h"

namespace moe::arch::falcon_h1 {
namespace {

constexpr TensorName kNames[] = {{"final_norm.weight", "model.final_layernorm.weight"},
                                 {"ffn_norm.weight", "pre_ff_layernorm.weight"}};

constexpr TensorName kMore[] = {{"mixer_norm.weight", "input_layernorm.weight"},
                                {"mamba2.in.weight", "mamba.in_proj.weight"},
                                {"mamba2.conv.weight", "mamba.conv1d.weight"},
                                {"mamba2.dt_bias", "mamba.dt_bias"},
                                {"mamba2.a_log", "mamba.A_log"},
                                {"mamba2.d", "mamba.D"},
                                {"mamba2.out.weight", "mamba.out_proj.weight"},
                                {"ffn.gate.weight", "feed_forward.gate_proj.weight"},
                                {"ffn.up.weight", "feed_forward.up_proj.weight"},
                                {"ffn.down.weight", "feed_forward.down_proj.weight"}};

constexpr TensorName kConvBias[] = {{"mamba2.conv.bias", "mamba.conv1d.bias"}};
constexpr TensorName kInBias[] = {{"mamba2.in.bias", "mamba.in_proj.bias"}};
constexpr TensorName kOutBias[] = {{"mamba2.out.bias", "mamba.out_proj.bias"}};
constexpr TensorName kNorm[] = {{"mamba2.norm.weight", "mamba.norm.weight"}};
constexpr TensorName kMlpBias[] = {{"ffn.gate.bias", "feed_forward.gate_proj.bias"},
                                   {"ffn.up.bias", "feed_forward.up_proj.bias"},
                                   {"ffn.down.bias", "feed_forward.down_proj.bias"}};

/// Factors of matrices' inputs and outputs.
struct Multipliers {
  float attention_in = 1;
  float attention_out = 1;
  float mamba_in = 1;
  float mamba_out = 1;
  float gate = 1;
  float down = 1;
  std::vector<SourceFactor> parts;  // of the rows of Mamba2's first matrix
};

std::vector<float> read_list(ConfigKeys* keys, const char* key, size_t n) {
  std::vector<float> out;
  for (const JsonNode& node : keys->list(key, n)) out.push_back(static_cast<float>(node.number()));
  if (out.empty()) out.assign(n, 1.0f);
  return out;
}

Multipliers read_multipliers(ConfigKeys* keys, const Mamba2Sizes& s) {
  Multipliers m;
  m.attention_in = keys->number("attention_in_multiplier", 1);
  m.attention_out = keys->number("attention_out_multiplier", 1);
  m.mamba_in = keys->number("ssm_in_multiplier", 1);
  m.mamba_out = keys->number("ssm_out_multiplier", 1);
  const std::vector<float> network = read_list(keys, "mlp_multipliers", 2);
  m.gate = network[0];
  m.down = network[1];
  const std::vector<float> parts = read_list(keys, "ssm_multipliers", 5);  // of z, x, B, C and dt
  const auto inner = static_cast<int32_t>(s.inner());
  const int32_t keys_of_groups = s.groups * s.state_dim;
  const int32_t rows[] = {inner, inner, keys_of_groups, keys_of_groups, s.heads};
  for (size_t i = 0; i < parts.size(); ++i) m.parts.push_back({rows[i], parts[i]});
  return m;
}

std::vector<SourceFactor> scaled(std::vector<SourceFactor> factors, float by) {
  for (SourceFactor& part : factors) part.factor *= by;
  return factors;
}

// A bias is added before the factor of the output, and after that of the input.
std::vector<SourceFactor> factors_of(const Multipliers& m, const SlotGroup& group,
                                     const Slot& slot) {
  const auto all = [&](float factor) { return std::vector<SourceFactor>{{slot.rows, factor}}; };
  if (group.part == Part::kAttention) {
    const bool in = slot.role == Role::kQ || slot.role == Role::kK || slot.role == Role::kV;
    if (in) return all(m.attention_in);
    return slot.role == Role::kO || slot.role == Role::kOBias ? all(m.attention_out)
                                                              : std::vector<SourceFactor>{};
  }
  if (group.part == Part::kFfn) {
    if (slot.role == Role::kGate || slot.role == Role::kGateBias) return all(m.gate);
    if (slot.role == Role::kDown || slot.role == Role::kDownBias) return all(m.down);
    return {};
  }
  if (group.part != Part::kMixer || slot.role < Role::kFirstMixer) return {};
  const auto first = static_cast<int>(mixer_role(built_mixer("mamba2").kind, 0));
  switch (static_cast<int>(slot.role) - first) {
    case Mamba2Mixer::kIn:
      return scaled(m.parts, m.mamba_in);
    case Mamba2Mixer::kInBias:
      return m.parts;
    case Mamba2Mixer::kOut:
    case Mamba2Mixer::kOutBias:
      return all(m.mamba_out);
    default:
      return {};
  }
}

MixerConfig add_mamba(Decoder* d) {
  ConfigKeys& keys = d->keys;
  const int64_t expanded = int64_t{keys.integer("mamba_expand", 2, 1, 64)} * d->config().d_model;
  const bool expands = keys.contains("mamba_d_ssm") && !keys.has("mamba_d_ssm");  // null
  const MixerConfig mamba =
      read_mamba(d, expands ? expanded : keys.integer("mamba_d_ssm", 1024, 1, 1 << 20));
  for (LayerConfig& layer : d->layers()) {
    layer.has_mixer = true;
    layer.mixer.mixer = mamba;
  }
  if (keys.boolean("mamba_conv_bias", true)) d->names(kConvBias);
  if (keys.boolean("mamba_proj_bias", false)) d->names(kInBias);
  if (keys.boolean("projectors_bias", false)) d->names(kOutBias);
  if (keys.boolean("mamba_rms_norm", false)) {
    d->names(kNorm);
    if (keys.boolean("mamba_norm_before_gate", true)) {
      fail(MOE_ERR_UNSUPPORTED,
           "config.json: mamba_norm_before_gate: true is not supported; only false is");
    }
  }
  keys.ignore({"mamba_norm_before_gate"});
  keys.require("mamba_use_mlp", true);
  return mamba;
}

Imported import_falcon_h1(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 10000, 1e-5f);
  for (const TensorName& row : kNames) d.replace_name(row);
  d.names(kMore);
  d.attention_bias("attention_bias", false);
  if (d.keys.boolean("mlp_bias", false)) d.names(kMlpBias);
  const MixerConfig mamba = add_mamba(&d);
  const Multipliers m = read_multipliers(&d.keys, Mamba2Mixer::sizes(mamba));
  d.config().embedding_multiplier = d.keys.number("embedding_multiplier", 1);
  d.config().logit_multiplier = d.keys.number("lm_head_multiplier", 1);
  const float key = d.keys.number("key_multiplier", 1);
  if (!(key > 0)) fail_value(d.keys.node("key_multiplier"), "a number above 0 is");
  for (LayerConfig& layer : d.layers()) {
    AttentionConfig& a = layer.attention;
    a.multiplier = key / __builtin_sqrtf(static_cast<float>(a.head_dim));
  }
  d.keys.require("attn_layer_indices", nullptr);
  d.keys.require("sliding_window", nullptr);
  d.keys.ignore({"expansion_factor", "mlp_expansion_factor", "num_logits_to_keep",
                 "time_step_floor", "time_step_max", "time_step_min", "time_step_rank"});
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  turn_mamba_convolutions(checkpoint, &out);
  out.locate = [locate = std::move(out.locate), m](const SlotGroup& group, const Slot& slot) {
    Source source = locate(group, slot);
    source.factors = factors_of(m, group, slot);
    return source;
  };
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"falcon_h1", import_falcon_h1}};
  return kRows;
}

}  // namespace moe::arch::falcon_h1
