// SPDX-License-Identifier: MIT
// NomicBert (Nussbaum et al. 2024, arXiv:2402.01613), the encoder of nomic-embed-text: BERT with
// rotary positions and gated FFNs, without biases.

#include "formats/import/failure.h"
#include "src/convert/arch/bert_encoder.h"
#include "src/convert/arch/renamed_config.h"

namespace moe::arch::nomic_bert {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;

constexpr Place part_of_three(int32_t part) { return {.parts = 3, .part = part}; }

// The published names and, where they differ, those of the model in `transformers`.
constexpr TensorName kNames[] = {{"embedding.weight", "embeddings.word_embeddings.weight"},
                                 {"embedding_norm.weight", "emb_ln.weight"},
                                 {"embedding_norm.weight", "embeddings.LayerNorm.weight"},
                                 {"embedding_norm.bias", "emb_ln.bias"},
                                 {"embedding_norm.bias", "embeddings.LayerNorm.bias"},
                                 {"attention.q.weight", "attn.Wqkv.weight", part_of_three(0)},
                                 {"attention.q.weight", "self_attn.q_proj.weight"},
                                 {"attention.k.weight", "attn.Wqkv.weight", part_of_three(1)},
                                 {"attention.k.weight", "self_attn.k_proj.weight"},
                                 {"attention.v.weight", "attn.Wqkv.weight", part_of_three(2)},
                                 {"attention.v.weight", "self_attn.v_proj.weight"},
                                 {"attention.o.weight", "attn.out_proj.weight"},
                                 {"attention.o.weight", "self_attn.o_proj.weight"},
                                 {"attention_post_norm.weight", "norm1.weight"},
                                 {"attention_post_norm.weight", "post_attention_layernorm.weight"},
                                 {"attention_post_norm.bias", "norm1.bias"},
                                 {"attention_post_norm.bias", "post_attention_layernorm.bias"},
                                 {"ffn.up.weight", "mlp.fc11.weight"},
                                 {"ffn.up.weight", "mlp.up_proj.weight"},
                                 {"ffn.gate.weight", "mlp.fc12.weight"},
                                 {"ffn.gate.weight", "mlp.gate_proj.weight"},
                                 {"ffn.down.weight", "mlp.fc2.weight"},
                                 {"ffn.down.weight", "mlp.down_proj.weight"},
                                 {"ffn_post_norm.weight", "norm2.weight"},
                                 {"ffn_post_norm.weight", "post_mlp_layernorm.weight"},
                                 {"ffn_post_norm.bias", "norm2.bias"},
                                 {"ffn_post_norm.bias", "post_mlp_layernorm.bias"}};

constexpr EncoderTask kTasks[] = {{"Model", {.kind = HeadKind::kNone}, {}}};

// Published files have GPT-2's keys.
RenamedConfig with_usual_keys(const JsonNode& config) {
  RenamedConfig c(config);
  for (const auto& [published, usual] : {std::pair{"n_embd", "hidden_size"},
                                         {"n_head", "num_attention_heads"},
                                         {"n_inner", "intermediate_size"},
                                         {"n_layer", "num_hidden_layers"},
                                         {"n_positions", "max_position_embeddings"},
                                         {"layer_norm_epsilon", "layer_norm_eps"},
                                         {"rotary_emb_base", "rope_theta"}}) {
    c.rename(published, usual);
  }
  return c;
}

// "swiglu" is gated by silu; files of `transformers` name the gate alone.
Activation read_gate(ConfigKeys* keys) {
  if (!keys->has("activation_function")) return keys->activation("hidden_act");
  keys->ignore({"hidden_act"});
  const size_t kind = keys->node("activation_function").choice({"swiglu", "geglu"});
  return kind == 0 ? Activation::kSilu : Activation::kGelu;
}

// Refuses settings that the published code has and no published encoder without experts uses.
void check_constants(ConfigKeys* keys) {
  for (const char* key : {"causal", "is_decoder", "mlp_fc1_bias", "mlp_fc2_bias", "parallel_block",
                          "prenorm", "qkv_proj_bias", "rotary_emb_interleaved",
                          "scale_attn_by_inverse_layer_idx", "use_rms_norm"}) {
    keys->require(key, false);
  }
  keys->require("rotary_emb_fraction", 1.0);
  keys->require("rotary_emb_scale_base", nullptr);
  keys->require("rotary_scaling_factor", nullptr);
  keys->require("scale_attn_weights", true);
  keys->require("moe_every_n_layers", 0);
  keys->ignore({"attention_probs_dropout_prob",
                "bos_token_id",
                "classifier_dropout",
                "dense_seq_output",
                "eos_token_id",
                "fused_bias_fc",
                "fused_dropout_add_ln",
                "hidden_dropout_prob",
                "max_trained_positions",
                "pad_vocab_size_multiple",
                "parallel_block_tied_norm",
                "reorder_and_upcast_attn",
                "summary_activation",
                "summary_first_dropout",
                "summary_proj_to_labels",
                "summary_type",
                "summary_use_proj",
                "tie_word_embeddings",
                "type_vocab_size",
                "use_flash_attn",
                "use_xentropy"});
}

void read_layers(ConfigKeys* keys, Imported* out) {
  ModelConfig& c = out->config;
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.n_heads = a.n_kv_heads = keys->integer("num_attention_heads", 1, c.d_model);
  keys->check_divides("num_attention_heads", a.n_heads, "hidden_size", c.d_model);
  a.head_dim = c.d_model / a.n_heads;
  keys->require("head_dim", a.head_dim);
  a.causal = false;
  a.norms = {.pre = false, .out = false, .post = true};
  a.rope = read_rope(*keys, a.head_dim, c.context_length, 1000, &out->factors);
  layer.ffn.norms = a.norms;
  layer.ffn.d_ff = keys->integer("intermediate_size", 1, kMaxWidth);
  layer.ffn.gated = true;
  layer.ffn.act.kind = read_gate(keys);
  const int32_t n_layers = keys->integer("num_hidden_layers", 1, 1024);
  for (int32_t l = 0; l < n_layers; ++l) {
    check(c.layers.push(layer));
    out->cosine_widths.push_back(0);
  }
}

Imported import_nomic_bert(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig usual = with_usual_keys(config);
  const JsonNode node = usual.node();
  ConfigKeys keys(node);
  Imported out;
  ModelConfig* c = &out.config;
  const EncoderTask& task = read_encoder_task(&keys, kTasks);
  c->vocab_size = keys.integer("vocab_size", 1, 1 << 24);
  c->d_model = keys.integer("hidden_size", 1, kMaxWidth);
  c->context_length = keys.integer("max_position_embeddings", 2048, 1, 1 << 24);
  c->norm = NormKind::kLayer;
  c->norm_eps = keys.eps("layer_norm_eps", 1e-12f);
  c->embedding_norm = true;
  c->final_norm = false;
  c->pad_token_id = keys.integer("pad_token_id", 0, 0, c->vocab_size - 1);
  read_layers(&keys, &out);
  set_encoder_head(checkpoint, task, &keys, c);
  check_constants(&keys);
  keys.check_all_understood();
  out.warnings = keys.warnings();
  const bool published = checkpoint.find("encoder.layers.0.norm1.weight") != nullptr;
  TensorTable table(published ? "encoder.layers.{l}." : "layers.{l}.");
  table.add(kNames);
  finish_encoder(std::move(table), checkpoint, &out);
  out.ignored.push_back("pooler.dense.*");
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"nomic_bert", import_nomic_bert}};
  return kRows;
}

}  // namespace moe::arch::nomic_bert
