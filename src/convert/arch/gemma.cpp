// SPDX-License-Identifier: MIT
// Gemma 1 and 2 (Gemma team 2024) and Gemma 3 (2025), of models that see images the text part: the
// stored weights of norms are 1 less than their factors. From Gemma 2 on there are norms around
// each block. Gemma 2: every second layer has a window, and scores and logits are soft-capped.
// Gemma 3: most layers have a window and separate rotary positions.

#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/arch/plus_one.h"

namespace moe::arch::gemma {
namespace {

RenamedConfig with_defaults(const JsonNode& config) {
  RenamedConfig c(config);
  c.fallback("hidden_activation", "gelu_pytorch_tanh");
  c.fallback("tie_word_embeddings", true);
  c.fallback("head_dim", 256);
  return c;
}

// Gemma 2 and 3 read hidden_activation alone, and files have the same under the usual name.
RenamedConfig as_later_ones(const JsonNode& config) {
  RenamedConfig c = with_defaults(config);
  c.rename("hidden_activation", "hidden_act");
  return c;
}

constexpr const char* kLocalTheta = "rope_local_base_freq";

RenamedConfig as_others_with_local_rope(const JsonNode& config) {
  RenamedConfig c = as_later_ones(config);
  c.fallback("rope_theta", 1e6);
  split_rope(kLocalTheta, config.has(kLocalTheta) ? config.at(kLocalTheta).value() : Json(1e4), &c);
  return c;
}

void set_layers(Decoder* d) {
  const float scalar = d->keys.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) fail_value(d->keys.node("query_pre_attn_scalar"), "a number above 0 is");
  for (LayerConfig& layer : d->layers()) {
    AttentionConfig& a = layer.attention;
    a.multiplier = 1 / std::sqrt(scalar);
  }
}

// Common to all, except layers.
void set_common(Decoder* d) {
  d->names(mlp_names());
  d->attention_bias("attention_bias", false);
  d->keys.require("use_bidirectional_attention", false);
  d->keys.ignore({"hidden_activation", "cache_implementation"});
  d->config().embedding_multiplier = std::sqrt(static_cast<float>(d->config().d_model));
}

// From Gemma 2 on.
void set_norms(Decoder* d) {
  d->out_norms(true);
  d->replace_name({"ffn_norm.weight", "pre_feedforward_layernorm.weight"});
}

Imported finish(Decoder* d, const Checkpoint& checkpoint) {
  d->quantization(Quantization::kNone);
  const bool whole = d->keys.boolean("norms_hold_one", false);  // GGUF's
  Imported out = d->finish();
  if (!whole) add_one_to_norms(checkpoint, "", &out);
  return out;
}

// Null: none.
float read_cap(Decoder* d, const char* key, float fallback) {
  if (d->keys.contains(key) && !d->keys.has(key)) {
    d->keys.ignore({key});
    return 0;
  }
  const float cap = d->keys.number(key, fallback);
  if (!(cap > 0 && cap <= 1000)) {
    fail_value(d->keys.node(key), "a number above 0 and at most 1000 or null is");
  }
  return cap;
}

// The first files say "gelu" for what was trained with its approximation.
Imported import_gemma1(const JsonNode& config, const Checkpoint& checkpoint) {
  RenamedConfig c(config);
  const bool exact = !config.has("hidden_act") || config.at("hidden_act").value() == "gelu";
  if (!config.has("hidden_activation") && !exact) c.copy("hidden_act", "hidden_activation");
  RenamedConfig renamed = with_defaults(c.node());
  renamed.copy("hidden_activation", "hidden_act");
  const JsonNode node = renamed.node();
  Decoder d(node, checkpoint, 10000);
  set_common(&d);
  return finish(&d, checkpoint);
}

Imported import_gemma2(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig renamed = as_later_ones(config);
  const JsonNode node = renamed.node();
  Decoder d(node, checkpoint, 10000);
  set_common(&d);
  set_norms(&d);
  d.window_except_every(2);
  set_layers(&d);
  d.config().logit_cap = read_cap(&d, "final_logit_softcapping", 30);
  const float score_cap = read_cap(&d, "attn_logit_softcapping", 50);
  for (LayerConfig& layer : d.layers()) layer.attention.score_cap = score_cap;
  return finish(&d, checkpoint);
}

Imported import_gemma3(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig renamed = as_others_with_local_rope(config);
  const JsonNode node = renamed.node();
  Decoder d(node, checkpoint);
  set_common(&d);
  set_norms(&d);
  d.qk_norm(QkNorm::kHead);
  d.keys.require("final_logit_softcapping", nullptr);
  d.keys.require("attn_logit_softcapping", nullptr);
  d.keys.ignore({kLocalTheta});
  d.window_except_every(d.keys.integer("sliding_window_pattern", 6, 1, 1 << 16));
  d.local_rope(kLocalTheta);
  set_layers(&d);
  return finish(&d, checkpoint);
}

// The part that reads text, with the sizes that published files leave to defaults.
RenamedConfig text_config(const JsonNode& config) {
  RenamedConfig c(config.at("text_config"));
  const std::pair<const char*, Json> defaults[] = {
      {"vocab_size", 262208},     {"num_attention_heads", 8},
      {"num_key_value_heads", 4}, {"max_position_embeddings", 131072},
      {"rms_norm_eps", 1e-6},     {"bos_token_id", 2},
      {"pad_token_id", 0},        {"eos_token_id", 1}};
  c.take_beside(config, "bos_token_id", 2);
  c.take_beside(config, "eos_token_id", 1);
  c.take_beside(config, "pad_token_id", 0);
  c.take_beside(config, "quantization_config");
  c.take_beside(config, "tie_word_embeddings", true);
  for (const auto& [key, value] : defaults) {
    if (!c.json().contains(key)) c.fallback(key, value);
  }
  return c;
}

Imported import_gemma3_with_images(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig text = text_config(config);
  ConfigKeys keys(config);
  keys.ignore({"text_config", "vision_config", "mm_tokens_per_image", "boi_token_index",
               "eoi_token_index", "image_token_index", "eos_token_id", "bos_token_id",
               "pad_token_id", "tie_word_embeddings", "quantization_config"});
  keys.check_all_understood();
  Imported out = import_gemma3(text.node(), checkpoint);
  out.ignored.insert(out.ignored.end(), {"vision_tower.*", "multi_modal_projector.*"});
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"gemma", import_gemma1},
                                       {"gemma2", import_gemma2},
                                       {"gemma3_text", import_gemma3},
                                       {"gemma3", import_gemma3_with_images}};
  return kRows;
}

}  // namespace moe::arch::gemma
