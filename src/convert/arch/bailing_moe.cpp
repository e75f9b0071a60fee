// SPDX-License-Identifier: MIT
// Ling and Ring (inclusionAI 2025), and Sarvam: q, k and v in one tensor, shared experts. Version 1
// selects experts by softmax, version 2 and Sarvam as DeepSeek-V3 does.

#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/arch/copies.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::bailing_moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr const char* kEmbedding = "model.word_embeddings.weight";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kFinalNorm = "model.norm.weight";
constexpr const char* kScaledNorm = "model.norm.weight over the lengths of the head's columns";

constexpr TensorName kApart[] = {{"attention.q.weight", "self_attn.q_proj.weight"},
                                 {"attention.k.weight", "self_attn.k_proj.weight"},
                                 {"attention.v.weight", "self_attn.v_proj.weight"}};

// GGUF files and transformers have these names.
constexpr TensorName kOtherNames[] = {{"embedding.weight", "model.embed_tokens.weight"},
                                      {"attention.o.weight", "self_attn.o_proj.weight"}};

constexpr TensorName kNames[] = {
    {"moe.shared.gate.weight", "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_experts.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_experts.down_proj.weight"},
    {"moe.shared.gate.weight", "mlp.shared_expert.gate_proj.weight"},  // GGUF's
    {"moe.shared.up.weight", "mlp.shared_expert.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_expert.down_proj.weight"}};

constexpr TensorName kQkNorms[] = {{"attention.q_norm.weight", "attention.query_layernorm.weight"},
                                   {"attention.k_norm.weight", "attention.key_layernorm.weight"}};

constexpr TensorName kSelectionBias[] = {
    {"moe.router.selection_bias", "mlp.gate.expert_bias"},
    {"moe.router.selection_bias", "mlp.gate.e_score_correction_bias"},  // transformers 5
    {"moe.router.selection_bias", "mlp.gate.exp_probs_b.bias"}};        // GGUF's

/// A key that the published files and `transformers` 5 call differently.
struct Key {
  const char* published;
  const char* saved;
};
constexpr Key kKeys[] = {{"num_experts", "n_routed_experts"},
                         {"num_shared_experts", "n_shared_experts"},
                         {"use_qkv_bias", "attention_bias"}};

/// The versions differ in these, if no key says so.
struct Version {
  bool sigmoid = false;
  bool ling = true;
  float theta = 0;
  bool dense_bias = false;
  int32_t n_groups = 1;
  int32_t top_groups = 1;
};
constexpr Version kFirst = {.theta = 10000, .dense_bias = true};
constexpr Version kSecond = {.sigmoid = true, .theta = 600000, .n_groups = 8, .top_groups = 4};
constexpr Version kSarvam = {.sigmoid = true, .ling = false, .theta = 8000000};

RenamedConfig with_published_keys(const JsonNode& config) {
  RenamedConfig c(config);
  for (const Key& key : kKeys) c.rename(key.saved, key.published);
  return c;
}

// The second names are GGUF's, and those of q, k and v apart its first version's and transformers'.
void name_attention(Decoder* d) {
  d->qkv_in_one({"attention.query_key_value.weight", "self_attn.qkv_proj.weight"});
  d->names(kApart);
  if (!d->keys.boolean("use_qkv_bias", false)) return;
  d->qkv_in_one({"attention.query_key_value.bias", "self_attn.qkv_proj.bias"});
  d->names(qkv_bias_names());
}

void read_attention(Decoder* d, const Version& version) {
  name_attention(d);
  if (d->keys.boolean("use_bias", version.dense_bias)) {
    d->name({"attention.o.bias", "attention.dense.bias"});
    d->names(o_bias_name());
  }
  d->keys.require("use_sliding_window", false);
  d->keys.ignore({"sliding_window", "max_window_layers"});
  if (!version.sigmoid) return d->keys.require("use_qk_norm", false);
  if (!d->keys.boolean("use_qk_norm", true)) return;
  d->qk_norm(QkNorm::kHead);
  d->names(kQkNorms);
}

RouterConfig read_router(Decoder* d, const Version& version) {
  ConfigKeys& keys = d->keys;
  RouterConfig r;
  const int32_t n_experts = keys.integer("num_experts", 1, 1 << 16);
  r.k = keys.integer("num_experts_per_tok", 1, n_experts);
  keys.ignore({"router_dtype"});  // float32 here
  const bool renormalised = keys.boolean("norm_topk_prob", true) && (r.k > 1 || !version.ling);
  if (renormalised) r.weights = RouterWeights::kRenormalised;
  if (!version.sigmoid) {
    keys.require("score_function", "softmax");
    keys.require("routed_scaling_factor", 1);
    return r;
  }
  if (version.ling) keys.require("norm_topk_prob", true);  // which its code takes for granted
  for (const char* key : {"score_function", "scoring_func"}) keys.require(key, "sigmoid");
  keys.require("topk_method", "noaux_tc");
  keys.require("moe_router_enable_expert_bias", true);
  d->names(kSelectionBias);
  r.kind = RouterKind::kSigmoid;
  r.scale = keys.number("routed_scaling_factor", 1);
  read_expert_groups(&keys, "num_experts", version.n_groups, version.top_groups, &r);
  return r;
}

void add_experts(Decoder* d, const RouterConfig& router) {
  const FfnConfig dense = d->layer(0).ffn;
  const int32_t width =
      d->keys.integer_or_derived("moe_intermediate_size", dense.d_ff, 1, kMaxWidth);
  const int32_t of_shared =
      d->keys.integer_or_derived("moe_shared_expert_intermediate_size", width, 1, kMaxWidth);
  const int32_t n_shared = d->keys.integer("num_shared_experts", 0, 0, kMaxWidth / of_shared);
  const auto first = static_cast<size_t>(d->keys.integer("first_k_dense_replace", 0, 0, 1 << 16));
  d->experts("num_experts", "num_experts", width, router.weights);
  for (size_t l = 0; l < d->layers().size(); ++l) {
    FfnConfig& ffn = d->layer(l).ffn;
    ffn.moe.router = router;
    ffn.moe.shared = {.d_ff = n_shared * of_shared};
    if (l < first) ffn = dense;
  }
}

// The first version may divide every column of the head by its length. The final norm, whose factor
// of the same column it multiplies, takes the division over.
void divide_by_head(const Checkpoint& checkpoint, Imported* out) {
  const SourceTensor* const head = checkpoint.find(kHead);
  const SourceTensor* const norm = checkpoint.find(kFinalNorm);
  const auto width = static_cast<size_t>(out->config.d_model);
  const bool fits = head != nullptr && norm != nullptr && norm->n_elements == width &&
                    head->shape.size() == 2 && head->shape[1] == out->config.d_model;
  if (!fits) return;  // the plan reports what is wrong
  std::vector<float> row(width);
  std::vector<double> squares(width);
  for (uint64_t at = 0; at < head->n_elements; at += width) {
    checkpoint.read(*head, at, width, row.data());
    for (size_t i = 0; i < width; ++i) squares[i] += double{row[i]} * double{row[i]};
  }
  DerivedTensor& scaled = out->derived.emplace_back();
  scaled.name = kScaledNorm;
  scaled.shape = norm->shape;
  scaled.values.resize(width);
  checkpoint.read(*norm, 0, width, scaled.values.data());
  for (size_t i = 0; i < width; ++i) {
    scaled.values[i] = static_cast<float>(scaled.values[i] / (std::sqrt(squares[i]) + 1e-7));
  }
  out->ignored.push_back(kFinalNorm);
  out->locate = [locate = std::move(out->locate)](const SlotGroup& group, const Slot& slot) {
    Source source = locate(group, slot);
    if (source.tensor == kFinalNorm) source.tensor = kScaledNorm;
    return source;
  };
}

Imported import_version(const JsonNode& original, const Checkpoint& checkpoint,
                        const Version& version) {
  const RenamedConfig renamed = with_published_keys(original);
  const JsonNode config = renamed.node();
  Decoder d(config, checkpoint, version.theta, 1e-6f);
  if (d.config().tie_embeddings) {
    check_copy(checkpoint, kHead, kEmbedding, "tie_word_embeddings to false");
  }
  d.names(mlp_names());
  d.names(moe_names());
  d.names(kNames);
  d.replace_name({"embedding.weight", kEmbedding});
  d.replace_name({"attention.o.weight", "attention.dense.weight"});
  d.names(kOtherNames);
  d.keys.ignore({"embedding_dropout", "output_dropout", "mtp_loss_scaling_factor", "norm_softmax"});
  d.keys.require("use_rmsnorm", true);
  read_attention(&d, version);
  add_experts(&d, read_router(&d, version));
  if (version.sigmoid) d.keys.require("norm_head", false);
  const bool head_is_divided = d.keys.boolean("norm_head", false);
  if (head_is_divided && d.config().tie_embeddings) {
    fail_value(d.keys.node("norm_head"), "with tie_word_embeddings only false is");
  }
  d.name({"prediction.norm.weight", "model.layers.{l}.final_layernorm.weight"});
  d.prediction_layers(0);
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  if (head_is_divided) divide_by_head(checkpoint, &out);
  return out;
}

Imported import_second(const JsonNode& config, const Checkpoint& checkpoint) {
  return import_version(config, checkpoint, kSecond);
}

Imported import_sarvam(const JsonNode& config, const Checkpoint& checkpoint) {
  return import_version(config, checkpoint, kSarvam);
}

// Both versions, and later models of other layers, are published with the model_type of the first.
Imported import_by_architecture(const JsonNode& config, const Checkpoint& checkpoint) {
  if (!config.has("architectures")) {
    const bool second = config.has("n_group") || config.has("score_function");
    return import_version(config, checkpoint, second ? kSecond : kFirst);
  }
  const std::vector<JsonNode> names = config.at("architectures").elements();
  for (const JsonNode& name : names) {
    if (name.string() == "BailingMoeForCausalLM") return import_version(config, checkpoint, kFirst);
    if (name.string() == "BailingMoeV2ForCausalLM") return import_second(config, checkpoint);
  }
  fail_value(config.at("architectures"),
             "with model_type bailing_moe BailingMoeForCausalLM and BailingMoeV2ForCausalLM are");
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {
      {"bailing_moe", import_by_architecture, "BailingMoeForCausalLM"},
      {"bailing_moe_v2", import_second, "BailingMoeV2ForCausalLM"},
      {"sarvam_moe", import_sarvam}};
  return kRows;
}

}  // namespace moe::arch::bailing_moe
