// SPDX-License-Identifier: MIT
// Qwen3-Next (Qwen team 2025) and Qwen3.5 (2026), of models that see images the text part: gated
// delta rules in most layers, attention with an output gate and a partial rotation in the others.
// Norms are stored 1 less than their factors, except those inside the rule. The first of the layers
// that predict further tokens ("mtp.") is kept.

#include <algorithm>

#include "formats/import/failure.h"
#include "src/convert/arch/gated_delta.h"
#include "src/convert/arch/plus_one.h"
#include "src/convert/arch/qwen_experts.h"

namespace moe::arch::qwen3_next {
namespace {

constexpr const char* kRuleNorm = ".linear_attn.norm.weight";

constexpr TensorName kNames[] = {{"mixer_norm.weight", "input_layernorm.weight"},
                                 {"attention.output_gate.weight", "self_attn.q_proj.weight"},
                                 {"gated_delta.q_conv.weight", "linear_attn.conv1d.weight"},
                                 {"gated_delta.k_conv.weight", "linear_attn.conv1d.weight"},
                                 {"gated_delta.v_conv.weight", "linear_attn.conv1d.weight"},
                                 {"gated_delta.dt_bias", "linear_attn.dt_bias"},
                                 {"gated_delta.a_log", "linear_attn.A_log"},
                                 {"gated_delta.norm.weight", "linear_attn.norm.weight"},
                                 {"gated_delta.out.weight", "linear_attn.out_proj.weight"}};

constexpr TensorName kGateBias[] = {{"attention.output_gate.bias", "self_attn.q_proj.bias"}};

constexpr TensorName kGrouped[] = {{"gated_delta.q.weight", "linear_attn.in_proj_qkvz.weight"},
                                   {"gated_delta.k.weight", "linear_attn.in_proj_qkvz.weight"},
                                   {"gated_delta.v.weight", "linear_attn.in_proj_qkvz.weight"},
                                   {"gated_delta.z.weight", "linear_attn.in_proj_qkvz.weight"},
                                   {"gated_delta.b.weight", "linear_attn.in_proj_ba.weight"},
                                   {"gated_delta.a.weight", "linear_attn.in_proj_ba.weight"}};

constexpr TensorName kApart[] = {{"gated_delta.q.weight", "linear_attn.in_proj_qkv.weight"},
                                 {"gated_delta.k.weight", "linear_attn.in_proj_qkv.weight"},
                                 {"gated_delta.v.weight", "linear_attn.in_proj_qkv.weight"},
                                 {"gated_delta.z.weight", "linear_attn.in_proj_z.weight"}};

constexpr TensorName kRates[] = {{"gated_delta.b.weight", "linear_attn.in_proj_b.weight"},
                                 {"gated_delta.a.weight", "linear_attn.in_proj_a.weight"}};

// config.json with what its readers take for granted. Positions of a text are the same on all three
// axes, so that how these share the rotation does not matter.
RenamedConfig with_defaults(const JsonNode& config) {
  RenamedConfig c(config);
  Json& all = c.json();
  if (!all.contains("head_dim")) c.fallback("head_dim", 256);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!all.contains(key) || !all.at(key).is_object()) continue;
    all[key].erase("mrope_section");
    all[key].erase("mrope_interleaved");
  }
  const bool inside = all.contains("rope_parameters") && all.at("rope_parameters").is_object() &&
                      all.at("rope_parameters").contains("partial_rotary_factor");
  if (!inside && !all.contains("partial_rotary_factor")) c.fallback("partial_rotary_factor", 0.25);
  return c;
}

// q_proj holds, for each head, the rows of q and then those of its output gate.
void split_queries(int32_t head_dim, Imported* out) {
  out->locate = [locate = std::move(out->locate), head_dim](const SlotGroup& group,
                                                            const Slot& slot) {
    Source source = locate(group, slot);
    if (group.part != Part::kAttention) return source;
    const bool gate = slot.role == Role::kOutputGate || slot.role == Role::kOutputGateBias;
    if (!gate && slot.role != Role::kQ && slot.role != Role::kQBias) return source;
    const int64_t cols = slot.cols;
    source.shape = {int64_t{2} * slot.rows};
    if (slot.kind != SlotKind::kVector) source.shape.push_back(cols);
    source.row_groups.pieces = {{head_dim, gate ? head_dim * cols : 0}};
    source.row_groups.stride = 2 * head_dim * cols;
    return source;
  };
}

Decoder begin(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 10000, 1e-6f);
  d.names(kNames);
  d.qk_norm(QkNorm::kHead);
  if (d.keys.boolean("attention_bias", false)) {
    d.names(qkv_bias_names());
    d.names(o_bias_name());
    d.names(kGateBias);
  }
  d.keys.require("attn_output_gate", true);
  d.keys.require("use_sliding_window", false);
  for (LayerConfig& layer : d.layers()) layer.attention.output_gate = true;
  return d;
}

constexpr TensorName kPrediction[] = {
    {"prediction.next_norm.weight", "mtp.pre_fc_norm_embedding.weight"},
    {"prediction.next.weight", "mtp.fc.weight", {.col_parts = 2}},
    {"prediction.hidden_norm.weight", "mtp.pre_fc_norm_hidden.weight"},
    {"prediction.hidden.weight", "mtp.fc.weight", {.col_parts = 2, .col_part = 1}},
    {"prediction.norm.weight", "mtp.norm.weight"}};

void add_prediction(Decoder* d, const Checkpoint& checkpoint) {
  const int32_t n = d->keys.integer("mtp_num_hidden_layers", 1, 0, 64);
  const bool own_tables = d->keys.boolean("mtp_use_dedicated_embeddings", false);
  if (!has_tensors(checkpoint, "mtp.")) return;
  const LayerConfig* const like = like_guessing(d->config());
  if (n == 0 || own_tables || like == nullptr) {
    d->keys.warn(std::string("the layer that predicts further tokens (mtp.*) is left out: ") +
                 (n == 0       ? "config.json says that there is none"
                  : own_tables ? "its embedding is another one"
                               : "no other layer has attention"));
    d->ignore_tensors("mtp.*");
    d->skip_layers(std::max(n, 1));
    return;
  }
  for (int32_t l = 1; l < n; ++l) {
    d->ignore_tensors(("mtp.layers." + std::to_string(l) + ".*").c_str());
  }
  d->skip_layers(n - 1);
  d->add_prediction(*like, {.layer = "mtp.layers.0.", .names = kPrediction, .tensors = {"mtp.*"}});
}

// Norms of GGUF files do.
bool holds_one(Decoder* d) { return d->keys.boolean("norms_hold_one", false); }

Imported finish(Decoder* d, const Checkpoint& checkpoint) {
  const int32_t head_dim = d->layer(0).attention.head_dim;
  add_gated_delta(d, "full_attention_interval", d->config().norm_eps, 1);
  const bool alternate = d->keys.boolean("value_heads_alternate", false);  // GGUF's
  const bool whole = holds_one(d);
  if (whole) {
    d->prediction_layers(0);
  } else {
    d->skip_prediction_layers(0);
    add_prediction(d, checkpoint);
  }
  d->quantization(Quantization::kNone);
  Imported out = d->finish();
  arrange_gated_delta(&out, alternate);
  split_queries(head_dim, &out);
  if (!whole) add_one_to_norms(checkpoint, kRuleNorm, &out);
  return out;
}

Imported import_qwen3_next(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig whole = with_defaults(config);
  const JsonNode node = whole.node();
  Decoder d = begin(node, checkpoint);
  if (holds_one(&d)) d.names(kApart);  // older files have the grouped matrices
  d.names(kGrouped);
  add_qwen_experts(&d, true);
  return finish(&d, checkpoint);
}

Imported import_qwen3_5(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig whole = with_defaults(config);
  const JsonNode node = whole.node();
  Decoder d = begin(node, checkpoint);
  d.names(kApart);
  d.names(kRates);
  d.names(mlp_names());
  return finish(&d, checkpoint);
}

Imported import_qwen3_5_moe(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig whole = with_defaults(config);
  const JsonNode node = whole.node();
  Decoder d = begin(node, checkpoint);
  d.names(kApart);
  d.names(kRates);
  add_qwen_experts(&d, true);
  return finish(&d, checkpoint);
}

// The part that reads text.
template <Imported (*kRead)(const JsonNode&, const Checkpoint&)>
Imported import_text_of(const JsonNode& config, const Checkpoint& checkpoint) {
  RenamedConfig c(config.at("text_config"));
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    c.take_beside(config, key);
  }
  c.take_beside(config, "quantization_config");
  c.take_beside(config, "tie_word_embeddings", false);
  ConfigKeys keys(config);
  keys.ignore({"text_config", "vision_config", "image_token_id", "video_token_id",
               "vision_start_token_id", "vision_end_token_id", "tie_word_embeddings",
               "quantization_config", "eos_token_id", "bos_token_id", "pad_token_id"});
  keys.check_all_understood();
  Imported out = kRead(c.node(), checkpoint);
  out.ignored.insert(out.ignored.end(), {"model.visual.*", "visual.*"});
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"qwen3_next", import_qwen3_next},
                                       {"qwen3_5", import_text_of<import_qwen3_5>},
                                       {"qwen3_5_text", import_qwen3_5},
                                       {"qwen3_5_moe", import_text_of<import_qwen3_5_moe>},
                                       {"qwen3_5_moe_text", import_qwen3_5_moe}};
  return kRows;
}

}  // namespace moe::arch::qwen3_next
